//! Our own loops for weight gradients, for convolutions for which oneDNN has no vectorised primitive. These are
//! convolutions that read a plain image with few channels, other convolutions without groups, and large depthwise
//! kernels.

use base::simd;
use net::Conv;

use super::buf::AlignedBuf;
use super::divide::PerThread;
use super::framed::{frame, put_in_frame};
use super::lanes::by_block;
use super::moments::ChannelSums;
use super::threads::Threads;
use crate::{Error, TensorDesc};

pub(super) trait OwnGradient {
    fn bytes(&self) -> usize;

    /// Returns the weight gradient in plain OIHW order and writes the bias gradient to `db`.
    fn run(&mut self, x: &[f32], dy: &[f32], db: Option<&mut [f32]>) -> &[f32];
}

// Convolutions without groups. For plain images with few channels, such as grey images, oneDNN's own primitive needs 100
// times as long. It has no vectorised primitive for channel blocks with large kernels, such as 16x16.

/// Number of kernel taps with sums in registers. Nine keep two multiply-add units with a latency of four cycles busy,
/// and few of them are unused for 3x3 and 5x5 kernels.
const TAPS: usize = 9;

/// The gradient for convolutions without groups.
pub(super) struct Ungrouped {
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    stride: [usize; 2],
    /// Position of the image in its frame of zeros: top, left, and the frame's height and width.
    frame: [usize; 4],
    /// Offset of every tap in the framed image, in I, H, W order.
    taps: Vec<usize>,
    /// Each thread's sums: (output channel block, tap, lane), where the last tap stands for the bias.
    partial: Vec<f32>,
    /// Each thread's framed image.
    framed: Vec<f32>,
    /// The weight gradient in plain OIHW order.
    dw: AlignedBuf,
}

simd! {
    /// Adds dy[row, column, :] * x[row, column of each tap] over all outputs of a channel block to `sums`.
    fn accumulate<B: usize>(x: &[f32], taps: &[usize; TAPS], step: (usize, usize), rows: usize, dy: &[f32], sums: &mut [[f32; B]; TAPS]) {
        let columns = dy.len() / rows / B;
        let mut acc = *sums;
        for (row, dy) in dy.chunks_exact(columns * B).enumerate() {
            let x: [&[f32]; TAPS] = std::array::from_fn(|t| &x[taps[t] + row * step.0..][..(columns - 1) * step.1 + 1]);
            for (column, dy) in dy.as_chunks::<B>().0.iter().enumerate() {
                for t in 0..TAPS {
                    // SAFETY: column < columns, and the slice taken above ends with the value of the last column.
                    let value = unsafe { *x[t].get_unchecked(column * step.1) };
                    for lane in 0..B {
                        acc[t][lane] = value.mul_add(dy[lane], acc[t][lane]);
                    }
                }
            }
        }
        *sums = acc;
    }
}

simd! {
    /// Adds dy[row, column, :] over all outputs of a channel block to `sums`.
    fn add_up<B: usize>(dy: &[f32], sums: &mut [f32; B]) {
        let mut acc = *sums;
        for dy in dy.as_chunks::<B>().0 {
            for lane in 0..B {
                acc[lane] += dy[lane];
            }
        }
        *sums = acc;
    }
}

impl Ungrouped {
    /// Plans the gradient of a convolution without groups.
    pub fn new(threads: Threads, op: &Conv, x: TensorDesc, y: TensorDesc, name: &str) -> Result<Self, Error> {
        let [kh, kw] = op.kernel;
        let (frame, [dh, dw]) = (frame(op, x.shape, y.shape), op.dilation);
        let [_, _, height, width] = frame;
        let taps: Vec<usize> = (0..x.shape.c * kh * kw)
            .map(|t| (t / (kh * kw) * height + t / kw % kh * dh) * width + t % kw * dw)
            .collect();
        let channels = y.blocks() * y.block;
        Ok(Self {
            threads,
            x,
            y,
            stride: op.stride,
            frame,
            partial: vec![0.0; threads.0 * channels * (taps.len() + 1)],
            framed: vec![0.0; threads.0 * x.shape.c * height * width],
            dw: AlignedBuf::zeroed(y.shape.c * taps.len(), name)?,
            taps,
        })
    }

    /// Writes the weight gradient to `self.dw`, and the bias gradient to `db`.
    fn run_blocks<const B: usize>(&mut self, x: &[f32], dy: &[f32], db: Option<&mut [f32]>) {
        let threads = self.threads;
        let (count, blocks, row) = (self.taps.len(), self.y.blocks(), self.y.shape.plane() * B);
        let (per_thread, image) = (blocks * B * (count + 1), self.framed.len() / threads.0);
        let parts = (PerThread::new(&mut self.partial, per_thread), PerThread::new(&mut self.framed, image));
        let (taps, frame, image, stride) = (&self.taps, self.frame, self.x, self.stride);
        let rows = self.y.shape.h;
        threads.divide(self.x.n, parts, |samples, (sums, framed)| {
            sums.fill(0.0);
            for n in samples {
                put_in_frame(&image, &x[n * image.sample_elems()..], frame, framed);
                for block in 0..blocks {
                    let dy = &dy[(n * blocks + block) * row..][..row];
                    let sums = &mut sums[block * B * (count + 1)..][..B * (count + 1)];
                    for first in (0..count).step_by(TAPS) {
                        // If fewer taps are left, the last tap is summed again and ignored.
                        let group = std::array::from_fn(|i| taps[(first + i).min(count - 1)]);
                        let mut acc = [[0.0; B]; TAPS];
                        accumulate::<B>(framed, &group, (stride[0] * frame[3], stride[1]), rows, dy, &mut acc);
                        for (tap, acc) in (first..count).zip(&acc) {
                            sums[tap * B..][..B].iter_mut().zip(acc).for_each(|(s, a)| *s += a);
                        }
                    }
                    if let Some(bias) = sums[count * B..].as_chunks_mut::<B>().0.first_mut() {
                        add_up::<B>(dy, bias);
                    }
                }
            }
        });
        let busy: Vec<usize> = threads.with_items(self.x.n).collect();
        let total = |channel: usize, tap: usize| {
            let at = (channel / B * (count + 1) + tap) * B + channel % B;
            busy.iter().map(|thread| f64::from(self.partial[thread * per_thread + at])).sum::<f64>() as f32
        };
        // The channels of a block are contiguous in the sums, so the inner loop is over channels.
        threads.split(self.dw.as_mut_slice(), B * count, |first, dw| {
            for tap in 0..count {
                let of_channels = dw.iter_mut().skip(tap).step_by(count);
                (first * B..).zip(of_channels).for_each(|(channel, dw)| *dw = total(channel, tap));
            }
        });
        if let Some(db) = db {
            db.iter_mut().enumerate().for_each(|(channel, db)| *db = total(channel, count));
        }
    }
}

impl OwnGradient for Ungrouped {
    fn bytes(&self) -> usize {
        (self.partial.len() + self.framed.len() + self.dw.as_slice().len()) * 4
    }

    fn run(&mut self, x: &[f32], dy: &[f32], db: Option<&mut [f32]>) -> &[f32] {
        by_block!(self.y.block, self.run_blocks(x, dy, db));
        self.dw.as_slice()
    }
}

// Depthwise convolutions. oneDNN 2.x has no vectorised primitive for kernels larger than 3x3.

/// Number of independent sums per row.
const SUMS: usize = 4;

/// The gradient for depthwise convolutions.
pub(super) struct Depthwise {
    x: TensorDesc,
    y: TensorDesc,
    grid: Grid,
    /// For each channel block, the sums for each tap, then for the bias. The channels of a block are contiguous.
    sums: ChannelSums,
    /// The gradient in plain order.
    dw: AlignedBuf,
}

/// The positions of the windows on a plane.
struct Grid {
    taps: Vec<Tap>,
    stride: [usize; 2],
    /// Widths of x and of y in pixels.
    widths: [usize; 2],
}

struct Tap {
    /// Rows and columns of the outputs for which this tap is inside the image.
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    /// Row and column in the image that this tap reads for the first of these outputs.
    first: [usize; 2],
}

simd! {
    /// Adds dy[i] * x[i * step] over a row to `sums`.
    fn add_row<B: usize>(dy: &[f32], x: &[f32], step: usize, sums: &mut [[f32; B]; SUMS]) {
        let mut acc = *sums;
        let (groups, rest) = dy.as_chunks::<B>().0.as_chunks::<SUMS>();
        for (i, group) in groups.iter().enumerate() {
            for (k, dy) in group.iter().enumerate() {
                let x = &x[(i * SUMS + k) * step * B..][..B];
                for lane in 0..B {
                    acc[k][lane] = dy[lane].mul_add(x[lane], acc[k][lane]);
                }
            }
        }
        for (k, dy) in rest.iter().enumerate() {
            let x = &x[(groups.len() * SUMS + k) * step * B..][..B];
            for lane in 0..B {
                acc[k][lane] = dy[lane].mul_add(x[lane], acc[k][lane]);
            }
        }
        *sums = acc;
    }
}

/// Returns the outputs for which a tap is inside the image, and the tap's position for the first of them, along one
/// axis. `offset` is the tap's distance from the start of its window.
fn inside(offset: usize, pad: usize, stride: usize, size: usize, outputs: usize) -> (std::ops::Range<usize>, usize) {
    let from = pad.saturating_sub(offset).div_ceil(stride).min(outputs);
    let to = (size + pad).saturating_sub(offset).div_ceil(stride).min(outputs);
    (from..to.max(from), (from * stride + offset).saturating_sub(pad))
}

impl Depthwise {
    /// Plans the gradient of a convolution in channel blocks. Each group must have a single input channel and a single
    /// output channel.
    pub fn new(threads: Threads, op: &Conv, x: TensorDesc, y: TensorDesc, name: &str) -> Result<Self, Error> {
        let [kh, kw] = op.kernel;
        let tap = |t: usize| {
            let axis = |axis: usize, cell: usize, size: usize, outputs: usize| {
                inside(cell * op.dilation[axis], op.pads[axis], op.stride[axis], size, outputs)
            };
            let (rows, row) = axis(0, t / kw, x.shape.h, y.shape.h);
            let (columns, column) = axis(1, t % kw, x.shape.w, y.shape.w);
            Tap { rows, columns, first: [row, column] }
        };
        let taps: Vec<Tap> = (0..kh * kw).map(tap).collect();
        let sums = ChannelSums::new(threads, x.blocks() * x.block * (taps.len() + 1));
        let dw = AlignedBuf::zeroed(x.shape.c * taps.len(), name)?;
        Ok(Self { x, y, grid: Grid { taps, stride: op.stride, widths: [x.shape.w, y.shape.w] }, sums, dw })
    }
}

impl OwnGradient for Depthwise {
    fn bytes(&self) -> usize {
        self.sums.bytes() + self.dw.as_slice().len() * 4
    }

    fn run(&mut self, x: &[f32], dy: &[f32], db: Option<&mut [f32]>) -> &[f32] {
        let (count, block, blocks) = (self.grid.taps.len(), self.x.block, self.x.blocks());
        let (px, py) = (self.x.shape.plane() * block, self.y.shape.plane() * block);
        let grid = &self.grid;
        let sums = self.sums.compute(self.x.n, (), |samples, sums, ()| {
            for plane in samples.start * blocks..samples.end * blocks {
                let sums = &mut sums[plane % blocks * (count + 1) * block..][..(count + 1) * block];
                let (x, dy) = (&x[plane * px..][..px], &dy[plane * py..][..py]);
                by_block!(block, sum_plane(grid, x, dy, sums));
            }
        });
        let total =
            |channel: usize, tap: usize| sums[(channel / block * (count + 1) + tap) * block + channel % block] as f32;
        for (i, dw) in self.dw.as_mut_slice().iter_mut().enumerate() {
            *dw = total(i / count, i % count);
        }
        if let Some(db) = db {
            db.iter_mut().enumerate().for_each(|(channel, db)| *db = total(channel, count));
        }
        self.dw.as_slice()
    }
}

/// Adds the sums over the plane of a channel block to `sums`: for each tap the products of dy and x, then dy itself.
fn sum_plane<const B: usize>(grid: &Grid, x: &[f32], dy: &[f32], sums: &mut [f64]) {
    let [from_width, width] = grid.widths;
    let (of_taps, of_bias) = sums.split_at_mut(grid.taps.len() * B);
    for (tap, sums) in grid.taps.iter().zip(of_taps.chunks_exact_mut(B)) {
        let mut own = [[0f32; B]; SUMS];
        for (i, row) in tap.rows.clone().enumerate() {
            let at = (tap.first[0] + i * grid.stride[0]) * from_width + tap.first[1];
            let dy = &dy[(row * width + tap.columns.start) * B..(row * width + tap.columns.end) * B];
            add_row::<B>(dy, x.get(at * B..).unwrap_or(&[]), grid.stride[1], &mut own);
        }
        for own in own {
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += f64::from(own));
        }
    }
    for dy in dy.chunks_exact(B) {
        of_bias.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += f64::from(*dy));
    }
}

#[cfg(test)]
mod tests {
    use net::Shape;

    use super::*;

    /// The last channel block is incomplete, and three threads share two samples. A second run must not add to the
    /// first run's sums. All values are small integers, so the sums are exact.
    #[test]
    fn gradients_are_sums_over_the_batch_in_every_run() {
        let (samples, inputs, outputs) = (2, 2, 11);
        let x = TensorDesc::plain(samples, Shape::image(inputs, 3, 4));
        let y = TensorDesc { block: 8, ..TensorDesc::plain(samples, Shape::image(outputs, 2, 3)) };
        let value = |i: usize| (i * 7 % 11) as f32 - 5.0;
        let images: Vec<f32> = (0..x.elems()).map(value).collect();
        let slopes: Vec<f32> = (3..3 + samples * outputs * 6).map(value).collect();
        let mut dy = vec![0.0; y.elems()];
        y.from_plain(&slopes, &mut dy);
        let products = |output: usize, input: usize, row: usize, column: usize| -> f32 {
            let at = |n: usize, i: usize, j: usize| {
                let pixel = images[((n * inputs + input) * 3 + i + row) * 4 + j + column];
                slopes[((n * outputs + output) * 2 + i) * 3 + j] * pixel
            };
            (0..samples * 6).map(|k| at(k / 6, k / 3 % 2, k % 3)).sum()
        };
        let weights = (0..outputs * inputs * 4).map(|k| products(k / (inputs * 4), k / 4 % inputs, k / 2 % 2, k % 2));
        let want_dw: Vec<f32> = weights.collect();
        let bias = |output: usize| slopes.chunks(6).skip(output).step_by(outputs).flatten().sum::<f32>();
        let want_db: Vec<f32> = (0..outputs).map(bias).collect();
        let mut own = Ungrouped::new(Threads(3), &Conv::new(outputs, 2), x, y, "test").unwrap();
        for _ in 0..2 {
            let mut db = vec![9.0; outputs];
            assert_eq!(own.run(&images, &dy, Some(&mut db[..])), want_dw);
            assert_eq!(db, want_db);
        }
    }
}

//! Weight gradient of a convolution of each channel alone, for which oneDNN 2.x has no vectorised primitive where the kernel is larger
//! than 3 x 3.

use base::simd;
use net::Conv;

use super::buf::AlignedBuf;
use super::channel_sums::ChannelSums;
use super::lanes::by_block;
use super::own_gradient::OwnGradient;
use super::threads::Threads;
use crate::{Error, TensorDesc};

/// Sums of a row that are made side by side.
const ABREAST: usize = 4;

/// Sizes and the result.
pub(super) struct Depthwise {
    x: TensorDesc,
    y: TensorDesc,
    grid: Grid,
    /// Of each block of channels: each tap's, then the bias's, channels side by side.
    sums: ChannelSums,
    /// The plain gradient.
    dw: AlignedBuf,
}

/// How windows lie on a plane.
struct Grid {
    taps: Vec<Tap>,
    stride: [usize; 2],
    /// Columns of x and y.
    widths: [usize; 2],
}

/// One cell of the kernel.
struct Tap {
    /// Outputs whose window has it inside the image, down the rows and along the columns.
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    /// The first of these outputs' cell: row, column.
    first: [usize; 2],
}

simd! {
    /// Adds dy[i] * x[i * step] over the places of a row to `sums`.
    fn accumulate<B: usize>(dy: &[f32], x: &[f32], step: usize, sums: &mut [[f32; B]; ABREAST]) {
        let mut acc = *sums;
        let (groups, rest) = dy.as_chunks::<B>().0.as_chunks::<ABREAST>();
        for (i, group) in groups.iter().enumerate() {
            for (k, dy) in group.iter().enumerate() {
                let x = &x[(i * ABREAST + k) * step * B..][..B];
                for lane in 0..B {
                    acc[k][lane] = dy[lane].mul_add(x[lane], acc[k][lane]);
                }
            }
        }
        for (k, dy) in rest.iter().enumerate() {
            let x = &x[(groups.len() * ABREAST + k) * step * B..][..B];
            for lane in 0..B {
                acc[k][lane] = dy[lane].mul_add(x[lane], acc[k][lane]);
            }
        }
        *sums = acc;
    }
}

/// The outputs whose window has a cell, `offset` from its beginning, inside the image, and the cell of the first.
fn inside(offset: usize, pad: usize, stride: usize, size: usize, outputs: usize) -> (std::ops::Range<usize>, usize) {
    let from = pad.saturating_sub(offset).div_ceil(stride).min(outputs);
    let to = (size + pad).saturating_sub(offset).div_ceil(stride).min(outputs);
    (from..to.max(from), (from * stride + offset).saturating_sub(pad))
}

impl Depthwise {
    /// For a convolution with as many groups as channels go in and come out, in blocks of channels.
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
        let sums = self.sums.of(self.x.n, |samples, sums| {
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

/// Adds the sums over one plane of a block of channels: of each tap, then of dy.
fn sum_plane<const B: usize>(grid: &Grid, x: &[f32], dy: &[f32], sums: &mut [f64]) {
    let [from_width, width] = grid.widths;
    let (of_taps, of_bias) = sums.split_at_mut(grid.taps.len() * B);
    for (tap, sums) in grid.taps.iter().zip(of_taps.chunks_exact_mut(B)) {
        let mut own = [[0f32; B]; ABREAST];
        for (i, row) in tap.rows.clone().enumerate() {
            let at = (tap.first[0] + i * grid.stride[0]) * from_width + tap.first[1];
            let dy = &dy[(row * width + tap.columns.start) * B..(row * width + tap.columns.end) * B];
            accumulate::<B>(dy, x.get(at * B..).unwrap_or(&[]), grid.stride[1], &mut own);
        }
        for own in own {
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += f64::from(own));
        }
    }
    for dy in dy.chunks_exact(B) {
        of_bias.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += f64::from(*dy));
    }
}

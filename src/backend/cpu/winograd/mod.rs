//! 3x3 convolutions at stride 1 by Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray 2015, arXiv 1509.09308, section 4):
//! 2.25 times fewer multiplications than the direct form, in all three passes, which oneDNN 2.x has for AVX-512 only.
//!
//! An image is cut into tiles of 2x2 outputs, each from 4x4 inputs. Tiles and filters are transformed to 16 places of a 4x4
//! grid; per place, the channels are a matrix product. Inputs, outputs and gradients stay in channel blocks of 8.
//! The constants are 1 and 1/2, so the rounding error is that of a few more additions.

mod kernel;
mod transform;

use super::buf::AlignedBuf;
use super::simd;
use super::threads::{Shared, Threads};
use super::{Cpu, Format};
use crate::backend::op::Conv;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};
use kernel::WIDTH;
use transform::{BLOCK, PLACES, Side};

/// Tiles that one thread takes through all stages at once: their transforms stay in its caches.
const STRIP: usize = 24;

/// A convolution of known sizes.
pub(super) struct Plan {
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    wants_dx: bool,
    /// Transformed filters: place, group of [`WIDTH`] output channels, input channel, output channel.
    filters: AlignedBuf,
    /// The same for the backward pass: rotated, with input and output exchanged; empty if nobody wants dx.
    rotated: AlignedBuf,
    /// Each thread's gradient of `filters`.
    gradient: AlignedBuf,
    /// Each thread's transformed inputs and outputs of one strip.
    work: AlignedBuf,
}

/// Whether this convolution, on this input, is one that pays.
pub(super) fn fits(op: &Conv, x: &TensorDesc) -> bool {
    let shape = op.kernel == [3, 3] && op.stride == [1, 1] && op.pads == [1; 4] && op.groups == 1;
    let processor = simd::level() >= simd::Level::Avx2;
    processor && shape && !op.bias && !op.relu && x.block == BLOCK && x.shape.plane() >= 16
}

/// Channels, padded to what the kernels take at once.
fn padded(channels: usize) -> usize {
    channels.next_multiple_of(WIDTH)
}

impl Plan {
    /// Plans all passes; the weights lie in plain order.
    pub fn new(cpu: &Cpu, r: &Request<'_, Cpu>, op: &Conv) -> Result<Self, Error> {
        let x = r.x[0];
        let y = TensorDesc { shape: crate::backend::op::Shape { c: op.out_channels, ..x.shape }, ..x };
        let (threads, ci, co) = (cpu.threads, padded(x.shape.c), padded(op.out_channels));
        let grid = PLACES * ci * co;
        let alloc = |n: usize| AlignedBuf::zeroed(n, r.name);
        let train = usize::from(r.train);
        Ok(Self {
            threads,
            x,
            y,
            wants_dx: r.wants_dx,
            filters: alloc(grid)?,
            rotated: alloc(if r.train && r.wants_dx { grid } else { 0 })?,
            gradient: alloc(grid * threads.0 * train)?,
            work: alloc(PLACES * STRIP * (ci + co) * threads.0)?,
        })
    }

    /// Convolves `from` into `to` (x into y, or dy into dx) with transformed filters.
    fn convolve(
        threads: Threads,
        work: &mut AlignedBuf,
        filters: &[f32],
        from: Side<'_>,
        to: TensorDesc,
        y: &mut [f32],
    ) {
        let (ci, co) = (padded(from.desc.shape.c), padded(to.shape.c));
        let share = work.as_slice().len() / threads.0;
        let (work, y) = (Shared::new(work.as_mut_slice()), Shared::new(y));
        let (tiles, sample) = (transform::tiles(&to), to.sample_elems());
        threads.each(to.n, |t, samples| {
            // SAFETY: each thread has its own stretch of work, borrowed until `each` returns.
            let work = unsafe { work.part(t * share..(t + 1) * share) };
            let (v, m) = work.split_at_mut(PLACES * STRIP * ci);
            for n in samples {
                // SAFETY: each sample is one thread's, and `y` is borrowed until `each` returns.
                let y = unsafe { y.part(n * sample..(n + 1) * sample) };
                for first in (0..tiles).step_by(STRIP) {
                    let count = STRIP.min(tiles - first);
                    // SAFETY: `fits` saw AVX2 and FMA on this processor.
                    unsafe { convolve_strip(from, n, filters, (ci, co), (first, count), (v, m), &to, y) };
                }
            }
        });
    }

    /// Sums the filters' gradient over all tiles, each thread's on its own.
    fn correlate(&mut self, x: Side<'_>, dy: Side<'_>) {
        let (ci, co) = (padded(self.x.shape.c), padded(self.y.shape.c));
        let (share, grid) = (self.work.as_slice().len() / self.threads.0, PLACES * ci * co);
        self.gradient.as_mut_slice().fill(0.0);
        let (work, gradient) = (Shared::new(self.work.as_mut_slice()), Shared::new(self.gradient.as_mut_slice()));
        let tiles = transform::tiles(&self.y);
        self.threads.each(self.x.n, |t, samples| {
            // SAFETY: each thread has its own stretch of both, borrowed until `each` returns.
            let (work, gradient) =
                unsafe { (work.part(t * share..(t + 1) * share), gradient.part(t * grid..(t + 1) * grid)) };
            let (v, d) = work.split_at_mut(PLACES * STRIP * ci);
            for (n, first) in samples.flat_map(|n| (0..tiles).step_by(STRIP).map(move |first| (n, first))) {
                let count = STRIP.min(tiles - first);
                // SAFETY: `fits` saw AVX2 and FMA on this processor.
                unsafe { correlate_strip(x, dy, n, (ci, co), (first, count), (v, d), gradient) };
            }
        });
    }
}

/// Inputs, products and outputs of tiles `first .. first + count` of sample `n`.
#[target_feature(enable = "avx2,fma")]
#[allow(clippy::too_many_arguments)]
fn convolve_strip(
    from: Side<'_>,
    n: usize,
    filters: &[f32],
    (ci, co): (usize, usize),
    (first, count): (usize, usize),
    (v, m): (&mut [f32], &mut [f32]),
    to: &TensorDesc,
    y: &mut [f32],
) {
    from.inputs(n, first, count, ci, v);
    for place in 0..PLACES {
        let v = &v[place * STRIP * ci..][..count * ci];
        let m = &mut m[place * STRIP * co..][..count * co];
        kernel::multiply(v, &filters[place * ci * co..][..ci * co], ci, co, m);
    }
    transform::outputs(to, m, first, count, co, y);
}

/// Adds what tiles `first .. first + count` of sample `n` give to the filters' gradient.
#[target_feature(enable = "avx2,fma")]
fn correlate_strip(
    x: Side<'_>,
    dy: Side<'_>,
    n: usize,
    (ci, co): (usize, usize),
    (first, count): (usize, usize),
    (v, d): (&mut [f32], &mut [f32]),
    gradient: &mut [f32],
) {
    x.inputs(n, first, count, ci, v);
    dy.gradients(n, first, count, co, d);
    for place in 0..PLACES {
        let v = &v[place * STRIP * ci..][..count * ci];
        let d = &d[place * STRIP * co..][..count * co];
        kernel::accumulate(v, d, ci, co, &mut gradient[place * ci * co..][..ci * co]);
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.y.shape.c * self.x.shape.c * 9)]
    }

    fn state_bytes(&self) -> usize {
        let parts = [&self.filters, &self.rotated, &self.gradient, &self.work];
        parts.iter().map(|b| b.as_slice().len() * 4).sum()
    }

    fn implementation(&self) -> String {
        "own winograd".into()
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let w = pass.params.get(pass.slots[0]);
        let (ci, co) = (self.x.shape.c, self.y.shape.c);
        transform::filters(w, ci, co, self.filters.as_mut_slice());
        let from = Side { desc: self.x, data: x[0].as_slice() };
        let n = self.y.elems();
        Self::convolve(self.threads, &mut self.work, self.filters.as_slice(), from, self.y, &mut y.as_mut_slice()[..n]);
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let (ci, co) = (self.x.shape.c, self.y.shape.c);
        let dy = Side { desc: self.y, data: g.dy.as_slice() };
        self.correlate(Side { desc: self.x, data: g.x[0].as_slice() }, dy);
        let dw = g.dparams.get_mut(pass.slots[0]);
        transform::filter_gradient(self.gradient.as_slice(), self.threads.0, ci, co, dw);
        let (Some(dx), true) = (g.dx, self.wants_dx) else { return Ok(()) };
        transform::rotated_filters(pass.params.get(pass.slots[0]), ci, co, self.rotated.as_mut_slice());
        let n = self.x.elems();
        Self::convolve(self.threads, &mut self.work, self.rotated.as_slice(), dy, self.x, &mut dx.as_mut_slice()[..n]);
        Ok(())
    }
}

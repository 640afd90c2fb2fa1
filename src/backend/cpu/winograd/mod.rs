//! 3x3 and 5x5 convolutions at stride 1 by Winograd's minimal filtering F(2x2, 3x3) and F(2x2, 5x5) (Lavin and Gray 2015,
//! arXiv 1509.09308, section 4): 2.25 and 2.78 times fewer multiplications than the direct form, in all three passes, which
//! oneDNN 2.x has for AVX-512 only.
//!
//! An image is cut into tiles of 2x2 outputs, each from A x A inputs, A = 4 or 6. Tiles and filters are transformed to the
//! places of an A x A grid; per place, the channels are a matrix product. Inputs, outputs and gradients stay in channel blocks
//! of 8. The constants of A = 4 are 1 and 1/2, so its rounding error is that of a few more additions; A = 6 loses one digit.

mod kernel;
mod transform;

use super::buf::AlignedBuf;
use super::simd;
use super::threads::{Shared, Threads};
use super::{Cpu, Format, elementwise};
use crate::backend::op::{Conv, Shape};
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};
use kernel::WIDTH;
use transform::{BLOCK, Finish, Side, strip_len};

/// A convolution of known sizes on an A x A grid.
struct Plan<const A: usize> {
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    relu: bool,
    /// The bias, padded with zeros; empty without one.
    bias: Vec<f32>,
    wants_dx: bool,
    /// Transformed filters: place, group of [`WIDTH`] output channels, input channel, output channel.
    filters: AlignedBuf,
    /// The same for the backward pass: rotated, with input and output exchanged; empty if nobody wants dx.
    rotated: AlignedBuf,
    /// Each thread's gradient of `filters`.
    gradient: AlignedBuf,
    /// Each thread's transformed inputs and outputs of one strip of tiles.
    work: AlignedBuf,
}

/// Plans a convolution on the grid that suits its kernel, if it is one that pays.
pub(super) fn plan(cpu: &Cpu, r: &Request<'_, Cpu>, op: &Conv) -> Option<Result<Box<dyn Planned<Cpu>>, Error>> {
    let x = &r.x[0];
    let [k, pad] = [op.kernel[0], op.pads[0]];
    let same = op.kernel == [k; 2] && op.pads == [pad; 4] && k == 2 * pad + 1 && op.stride == [1, 1] && op.groups == 1;
    let fits = same && cpu.block == BLOCK && x.block == BLOCK && x.shape.plane() >= 16;
    if !fits || simd::level() < simd::Level::Avx2 {
        return None;
    }
    match k {
        3 => Some(Plan::<4>::new(cpu, r, op).map(|p| Box::new(p) as _)),
        5 => Some(Plan::<6>::new(cpu, r, op).map(|p| Box::new(p) as _)),
        _ => None,
    }
}

/// Channels, padded to what the kernels take at once.
fn padded(channels: usize) -> usize {
    channels.next_multiple_of(WIDTH)
}

/// Tiles `first .. first + count` of sample `n`.
#[derive(Clone, Copy)]
struct Strip {
    n: usize,
    first: usize,
    count: usize,
}

impl<const A: usize> Plan<A> {
    /// Plans all passes; the weights lie in plain order.
    fn new(cpu: &Cpu, r: &Request<'_, Cpu>, op: &Conv) -> Result<Self, Error> {
        let x = r.x[0];
        let y = TensorDesc { shape: Shape { c: op.out_channels, ..x.shape }, ..x };
        let (threads, ci, co) = (cpu.threads, padded(x.shape.c), padded(op.out_channels));
        let grid = A * A * ci * co;
        let alloc = |n: usize| AlignedBuf::zeroed(n, r.name);
        let train = usize::from(r.train);
        Ok(Self {
            threads,
            x,
            y,
            relu: op.relu,
            bias: vec![0.0; if op.bias { co } else { 0 }],
            wants_dx: r.wants_dx,
            filters: alloc(grid)?,
            rotated: alloc(if r.train && r.wants_dx { grid } else { 0 })?,
            gradient: alloc(grid * threads.0 * train)?,
            work: alloc(A * A * strip_len(A) * (ci + co) * threads.0)?,
        })
    }

    fn has_bias(&self) -> bool {
        !self.bias.is_empty()
    }
}

/// A pass from one side to the other: x to y, or dy to dx.
struct Convolution<'a> {
    from: Side<'a>,
    to: TensorDesc,
    filters: &'a [f32],
    finish: Finish<'a>,
}

impl Convolution<'_> {
    fn run<const A: usize>(&self, threads: Threads, work: &mut AlignedBuf, y: &mut [f32]) {
        let share = work.as_slice().len() / threads.0;
        let (work, y) = (Shared::new(work.as_mut_slice()), Shared::new(y));
        let (tiles, sample) = (transform::tiles(&self.to), self.to.sample_elems());
        threads.each(self.to.n, |t, samples| {
            // SAFETY: each thread has its own stretch of work, borrowed until `each` returns.
            let work = unsafe { work.part(t * share..(t + 1) * share) };
            for n in samples {
                // SAFETY: each sample is one thread's, and `y` is borrowed until `each` returns.
                let y = unsafe { y.part(n * sample..(n + 1) * sample) };
                for first in (0..tiles).step_by(strip_len(A)) {
                    let count = strip_len(A).min(tiles - first);
                    // SAFETY: `plan` saw AVX2 and FMA on this processor.
                    unsafe { self.strip::<A>(Strip { n, first, count }, work, y) };
                }
            }
        });
    }

    /// Inputs, products and outputs of one strip.
    #[target_feature(enable = "avx2,fma")]
    fn strip<const A: usize>(&self, s: Strip, work: &mut [f32], y: &mut [f32]) {
        let (ci, co, len) = (padded(self.from.desc.shape.c), padded(self.to.shape.c), strip_len(A));
        let (v, m) = work.split_at_mut(A * A * len * ci);
        self.from.inputs::<A>(s.n, s.first, s.count, ci, v);
        for place in 0..A * A {
            let v = &v[place * len * ci..][..s.count * ci];
            let m = &mut m[place * len * co..][..s.count * co];
            kernel::multiply(v, &self.filters[place * ci * co..][..ci * co], ci, co, m);
        }
        transform::outputs::<A>(&self.to, m, (s.first, s.count), co, self.finish, y);
    }
}

impl<const A: usize> Plan<A> {
    /// Sums the filters' gradient over all tiles, each thread's on its own.
    fn correlate(&mut self, x: Side<'_>, dy: Side<'_>) {
        let (ci, co) = (padded(self.x.shape.c), padded(self.y.shape.c));
        let (share, grid) = (self.work.as_slice().len() / self.threads.0, A * A * ci * co);
        self.gradient.as_mut_slice().fill(0.0);
        let (work, gradient) = (Shared::new(self.work.as_mut_slice()), Shared::new(self.gradient.as_mut_slice()));
        let tiles = transform::tiles(&self.y);
        self.threads.each(self.x.n, |t, samples| {
            // SAFETY: each thread has its own stretch of both, borrowed until `each` returns.
            let (work, gradient) =
                unsafe { (work.part(t * share..(t + 1) * share), gradient.part(t * grid..(t + 1) * grid)) };
            for (n, first) in samples.flat_map(|n| (0..tiles).step_by(strip_len(A)).map(move |first| (n, first))) {
                let count = strip_len(A).min(tiles - first);
                // SAFETY: `plan` saw AVX2 and FMA on this processor.
                unsafe { correlate_strip::<A>(x, dy, Strip { n, first, count }, work, gradient) };
            }
        });
    }

    /// Sum of dy over images and pixels, by channel.
    fn bias_gradient(&self, dy: &[f32], db: &mut [f32]) {
        let (row, blocks) = (self.y.shape.plane() * BLOCK, self.y.blocks());
        self.threads.split(db, BLOCK, |first, db| {
            for (block, db) in (first..).zip(db.chunks_mut(BLOCK)) {
                let mut total = [0f64; BLOCK];
                for n in 0..self.y.n {
                    let mut sum = [0f32; BLOCK];
                    for lanes in dy[(n * blocks + block) * row..][..row].as_chunks::<BLOCK>().0 {
                        sum.iter_mut().zip(lanes).for_each(|(s, d)| *s += d);
                    }
                    total.iter_mut().zip(sum).for_each(|(t, s)| *t += f64::from(s));
                }
                db.iter_mut().zip(total).for_each(|(d, t)| *d = t as f32);
            }
        });
    }
}

/// Adds what one strip gives to the filters' gradient.
#[target_feature(enable = "avx2,fma")]
fn correlate_strip<const A: usize>(x: Side<'_>, dy: Side<'_>, s: Strip, work: &mut [f32], gradient: &mut [f32]) {
    let (ci, co, len) = (padded(x.desc.shape.c), padded(dy.desc.shape.c), strip_len(A));
    let (v, d) = work.split_at_mut(A * A * len * ci);
    x.inputs::<A>(s.n, s.first, s.count, ci, v);
    dy.gradients::<A>(s.n, s.first, s.count, co, d);
    for place in 0..A * A {
        let v = &v[place * len * ci..][..s.count * ci];
        let d = &d[place * len * co..][..s.count * co];
        kernel::accumulate(v, d, ci, co, &mut gradient[place * ci * co..][..ci * co]);
    }
}

impl<const A: usize> Planned<Cpu> for Plan<A> {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        let taps = transform::kernel(A) * transform::kernel(A);
        let mut formats = vec![Format::Plain(self.y.shape.c * self.x.shape.c * taps)];
        formats.extend(self.has_bias().then_some(Format::Plain(self.y.shape.c)));
        formats
    }

    fn state_bytes(&self) -> usize {
        let parts = [&self.filters, &self.rotated, &self.gradient, &self.work];
        parts.iter().map(|b| b.as_slice().len() * 4).sum()
    }

    fn implementation(&self) -> String {
        "own winograd".into()
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (ci, co, n) = (self.x.shape.c, self.y.shape.c, self.y.elems());
        transform::filters::<A>(pass.params.get(pass.slots[0]), ci, co, self.filters.as_mut_slice());
        if self.has_bias() {
            self.bias[..co].copy_from_slice(&pass.params.get(pass.slots[1])[..co]);
        }
        let convolution = Convolution {
            from: Side { desc: self.x, data: x[0].as_slice() },
            to: self.y,
            filters: self.filters.as_slice(),
            finish: Finish { bias: self.has_bias().then_some(&self.bias), relu: self.relu },
        };
        convolution.run::<A>(self.threads, &mut self.work, &mut y.as_mut_slice()[..n]);
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let (ci, co) = (self.x.shape.c, self.y.shape.c);
        if self.relu {
            let n = self.y.elems();
            elementwise::mask(self.threads, &mut g.dy.as_mut_slice()[..n], &g.y.as_slice()[..n]);
        }
        let dy = Side { desc: self.y, data: g.dy.as_slice() };
        self.correlate(Side { desc: self.x, data: g.x[0].as_slice() }, dy);
        let dw = g.dparams.get_mut(pass.slots[0]);
        transform::filter_gradient::<A>(self.gradient.as_slice(), self.threads.0, ci, co, dw);
        if self.has_bias() {
            self.bias_gradient(dy.data, &mut g.dparams.get_mut(pass.slots[1])[..co]);
        }
        let (Some(dx), true) = (g.dx, self.wants_dx) else { return Ok(()) };
        transform::rotated_filters::<A>(pass.params.get(pass.slots[0]), ci, co, self.rotated.as_mut_slice());
        let (to, filters) = (self.x, self.rotated.as_slice());
        let convolution = Convolution { from: dy, to, filters, finish: Finish { bias: None, relu: false } };
        convolution.run::<A>(self.threads, &mut self.work, &mut dx.as_mut_slice()[..to.elems()]);
        Ok(())
    }
}

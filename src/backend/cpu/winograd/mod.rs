//! 3x3 and 5x5 convolutions at stride 1 by Winograd's minimal filtering F(2x2, 3x3) and F(2x2, 5x5) (Lavin and Gray 2015,
//! arXiv 1509.09308, section 4): 2.25 and 2.78 times fewer multiplications than the direct form, in all three passes.
//!
//! An image is cut into tiles of 2x2 outputs, each from A x A inputs, A = 4 or 6. Tiles and filters are transformed to the
//! places of an A x A grid; per place, the channels are a matrix product. Inputs, outputs and gradients stay in channel
//! blocks, as long as a register: 8 with AVX2, 16 with AVX-512. The constants of A = 4 are 1 and 1/2,
//! so its rounding error is that of a few more additions; A = 6 loses one digit.

mod filters;
mod kernel;
mod transform;
mod vector;

use std::rc::Rc;

use super::buf::{AlignedBuf, Scratch};
use super::device::Cpu;
use super::flat;
use super::format::Format;
use super::lanes::by_block;
use super::threads::{Shared, Threads};
use crate::backend::op::{Conv, Shape};
use crate::backend::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};
use filters::Filters;
use kernel::{padded, step};
use transform::{Finish, Run, Side, tiles};
use vector::{Avx2, Avx512, Job, Vectors};

/// A convolution of known sizes on an A x A grid.
struct Plan<S: Vectors, const A: usize> {
    set: S,
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    relu: bool,
    /// The bias, padded with zeros; empty without one.
    bias: Vec<f32>,
    wants_dx: bool,
    /// Tiles that one thread takes through all stages at once.
    strip: usize,
    /// Work space for one pass: filters on the grid (place, group of output channels, input channel, output
    /// channel), or each thread's gradient of them; then each thread's transformed inputs and outputs of a strip.
    scratch: Rc<Scratch>,
}

/// Plans a convolution on the grid that suits its kernel, if it is one that pays; in f32 alone, as bf16 would round on the grid.
pub(super) fn plan(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Option<Result<Box<dyn Planned<Cpu>>, Error>> {
    let x = &r.x[0];
    let [k, pad] = [op.kernel[0], op.pads[0]];
    let same = op.kernel == [k; 2]
        && op.pads == [pad; 4]
        && k == 2 * pad + 1
        && op.stride == [1, 1]
        && op.dilation == [1, 1]
        && op.groups == 1;
    // planes of smaller images are computed as those of the largest are, whose weights lie in plain order
    let large = match r.formats.and_then(|formats| formats.first()) {
        Some(format) => matches!(format, Format::Plain(_)),
        None => x.shape.plane() >= 16,
    };
    if !same || cpu.bf16.is_some() || x.block != cpu.block || !large {
        return None;
    }
    match cpu.block {
        Avx2::LANES => on(Avx2::detect()?, cpu, r, op),
        // from 16 channels to 16 the transforms cost more than the products that they save
        Avx512::LANES if x.shape.c.max(op.out_channels) > Avx512::LANES => on(Avx512::detect()?, cpu, r, op),
        _ => None,
    }
}

fn on<S: Vectors + 'static>(
    set: S,
    cpu: &Cpu,
    r: &PlanRequest<'_, Cpu>,
    op: &Conv,
) -> Option<Result<Box<dyn Planned<Cpu>>, Error>> {
    match op.kernel[0] {
        3 => Some(Plan::<S, 4>::new(set, cpu, r, op).map(|p| Box::new(p) as _)),
        5 => Some(Plan::<S, 6>::new(set, cpu, r, op).map(|p| Box::new(p) as _)),
        _ => None,
    }
}

/// Tiles of a strip: enough that reading the grid of filters costs no more than reading the tiles themselves, few enough that
/// the tiles stay in the caches; the thread's tiles are divided evenly, in whole runs of the kernel's rows.
fn strip_len(a: usize, rows: usize, ci: usize, co: usize, tiles: usize) -> usize {
    let [least, most] = if a == 4 { [24, 256] } else { [12, 128] };
    let wanted = (ci * co / (ci + co)).clamp(least, most);
    let strips = tiles.div_ceil(wanted).max(1);
    tiles.div_ceil(strips).next_multiple_of(rows)
}

impl<S: Vectors, const A: usize> Plan<S, A> {
    /// Plans all passes; the weights lie in plain order.
    fn new(set: S, cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Self, Error> {
        let x = r.x[0];
        let y = TensorDesc { shape: Shape { c: op.out_channels, ..x.shape }, ..x };
        let (threads, ci, co) = (cpu.threads, padded(x.shape.c), padded(op.out_channels));
        let strip = strip_len(A, S::ROWS, ci, co, tiles(&y) * x.n.div_ceil(threads.0));
        let bias = vec![0.0; if op.bias { co } else { 0 }];
        let scratch = cpu.scratch.clone();
        let plan = Self { set, threads, x, y, relu: op.relu, bias, wants_dx: r.wants_dx, strip, scratch };
        let grids = if r.train { threads.0 } else { 1 };
        plan.scratch.reserve(plan.grid() * grids + plan.work() * threads.0, r.name)?;
        Ok(plan)
    }

    /// Floats of a grid of filters.
    fn grid(&self) -> usize {
        A * A * padded(self.x.shape.c) * padded(self.y.shape.c)
    }

    /// Floats of one thread's strip, inputs and outputs.
    fn work(&self) -> usize {
        A * A * self.strip * (step(padded(self.x.shape.c)) + step(padded(self.y.shape.c)))
    }

    fn has_bias(&self) -> bool {
        !self.bias.is_empty()
    }
}

/// The strips of a run of tiles.
fn strips(tiles: usize, len: usize) -> impl Iterator<Item = Run> {
    (0..tiles).step_by(len).map(move |first| Run { first, count: len.min(tiles - first), len })
}

/// A pass from one side to the other: x to y, or dy to dx.
struct Convolution<'a> {
    from: Side<'a>,
    to: TensorDesc,
    filters: &'a [f32],
    strip: usize,
    finish: Finish<'a>,
}

impl Convolution<'_> {
    fn run<S: Vectors, const A: usize>(&self, set: S, threads: Threads, work: &mut [f32], y: &mut [f32]) {
        let share = work.len() / threads.0;
        let (work, y) = (Shared::new(work), Shared::new(y));
        let (tiles, sample) = (tiles(&self.to), self.to.sample_elems());
        threads.each(self.to.n, |t, samples| {
            // SAFETY: each thread has its own stretch of work, borrowed until `each` returns.
            let work = unsafe { work.part(t * share..(t + 1) * share) };
            // SAFETY: each sample is one thread's, and `y` is borrowed until `each` returns.
            let y = unsafe { y.part(samples.start * sample..samples.end * sample) };
            let from = self.from.skip(samples.start);
            for run in strips(samples.len() * tiles, self.strip) {
                set.run(ConvolvedStrip::<A> { convolution: self, from, run, work, y });
            }
        });
    }
}

/// Inputs, products and outputs of one strip.
struct ConvolvedStrip<'a, const A: usize> {
    convolution: &'a Convolution<'a>,
    from: Side<'a>,
    run: Run,
    work: &'a mut [f32],
    y: &'a mut [f32],
}

impl<const A: usize> Job for ConvolvedStrip<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { convolution: Convolution { to, filters, finish, .. }, from, run, work, y } = self;
        let (ci, co) = (padded(from.desc.shape.c), padded(to.shape.c));
        let [ci_place, co_place] = [ci, co].map(|c| run.len * step(c));
        let (v, m) = work.split_at_mut(A * A * ci_place);
        from.inputs::<S, A>(set, run, ci, v);
        for place in 0..A * A {
            let (v, m) = (&v[place * ci_place..], &mut m[place * co_place..]);
            kernel::multiply(set, run.count, v, &filters[place * ci * co..][..ci * co], (ci, co), m);
        }
        transform::outputs::<S, A>(set, to, m, run, co, *finish, y);
    }
}

impl<S: Vectors, const A: usize> Plan<S, A> {
    /// Sums the filters' gradient over all tiles, each thread's on its own.
    fn correlate(&self, x: Side<'_>, dy: Side<'_>, gradient: &mut [f32], work: &mut [f32]) {
        let (set, share, grid, tiles, len) =
            (self.set, work.len() / self.threads.0, self.grid(), tiles(&self.y), self.strip);
        gradient.fill(0.0);
        let (work, gradient) = (Shared::new(work), Shared::new(gradient));
        self.threads.each(self.x.n, |t, samples| {
            // SAFETY: each thread has its own stretch of both, borrowed until `each` returns.
            let (work, gradient) =
                unsafe { (work.part(t * share..(t + 1) * share), gradient.part(t * grid..(t + 1) * grid)) };
            let (x, dy) = (x.skip(samples.start), dy.skip(samples.start));
            for run in strips(samples.len() * tiles, len) {
                set.run(CorrelatedStrip::<A> { x, dy, run, work, gradient });
            }
        });
    }
}

/// Sum of dy over images and pixels, by channel.
fn bias_gradient<const BLOCK: usize>(threads: Threads, desc: &TensorDesc, dy: &[f32], db: &mut [f32]) {
    let (row, blocks, samples) = (desc.shape.plane() * BLOCK, desc.blocks(), desc.n);
    threads.split(db, BLOCK, |first, db| {
        for (block, db) in (first..).zip(db.chunks_mut(BLOCK)) {
            let mut total = [0f64; BLOCK];
            for n in 0..samples {
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

/// Adds what one strip gives to the filters' gradient.
struct CorrelatedStrip<'a, const A: usize> {
    x: Side<'a>,
    dy: Side<'a>,
    run: Run,
    work: &'a mut [f32],
    gradient: &'a mut [f32],
}

impl<const A: usize> Job for CorrelatedStrip<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { x, dy, run, work, gradient } = self;
        let (ci, co) = (padded(x.desc.shape.c), padded(dy.desc.shape.c));
        let [ci_place, co_place] = [ci, co].map(|c| run.len * step(c));
        let (v, d) = work.split_at_mut(A * A * ci_place);
        x.inputs::<S, A>(set, run, ci, v);
        dy.gradients::<S, A>(set, run, co, d);
        for place in 0..A * A {
            let du = &mut gradient[place * ci * co..][..ci * co];
            kernel::accumulate(set, run.count, &v[place * ci_place..], &d[place * co_place..], (ci, co), du);
        }
    }
}

impl<S: Vectors, const A: usize> Planned<Cpu> for Plan<S, A> {
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
        self.bias.len() * 4
    }

    fn keeps(&self) -> Keeps {
        Keeps { inputs: 1, output: self.relu }
    }

    fn implementation(&self) -> String {
        "own winograd".into()
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (ci, co, n) = (self.x.shape.c, self.y.shape.c, self.y.elems());
        if self.has_bias() {
            self.bias[..co].copy_from_slice(&pass.params.get(pass.slots[1])[..co]);
        }
        let mut scratch = self.scratch.borrow();
        let (filters, work) = scratch.as_mut_slice().split_at_mut(self.grid());
        Filters::forward::<A>(ci, co).transform::<S, A>(
            self.set,
            self.threads,
            pass.params.get(pass.slots[0]),
            filters,
        );
        let finish = Finish { bias: self.has_bias().then_some(&self.bias), relu: self.relu };
        let from = Side { desc: self.x, data: x[0].as_slice() };
        let convolution = Convolution { from, to: self.y, filters, strip: self.strip, finish };
        let work = &mut work[..self.work() * self.threads.0];
        convolution.run::<S, A>(self.set, self.threads, work, &mut y.as_mut_slice()[..n]);
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let wanted = g.take_dx(0);
        let (set, ci, co, threads) = (self.set, self.x.shape.c, self.y.shape.c, self.threads);
        if self.relu {
            let n = self.y.elems();
            flat::mask(threads, &mut g.dy.as_mut_slice()[..n], &g.y.as_slice()[..n]);
        }
        let (x, dy) = (g.x[0].as_slice(), Side { desc: self.y, data: g.dy.as_slice() });
        let scratch = self.scratch.clone();
        let mut scratch = scratch.borrow();
        let (grids, work) = scratch.as_mut_slice().split_at_mut(self.grid() * threads.0);
        let work = &mut work[..self.work() * threads.0];
        if !pass.frozen {
            self.correlate(Side { desc: self.x, data: x }, dy, grids, work);
            Filters::forward::<A>(ci, co).gradient::<S, A>(set, threads, grids, g.dparams.get_mut(pass.slots[0]));
        }
        if self.has_bias() && !pass.frozen {
            let db = &mut g.dparams.get_mut(pass.slots[1])[..co];
            by_block!(S::LANES, bias_gradient(threads, &self.y, dy.data, db));
        }
        let (Some(dx), true) = (wanted, self.wants_dx) else { return Ok(()) };
        let filters = &mut grids[..self.grid()];
        Filters::rotated::<A>(ci, co).transform::<S, A>(set, threads, pass.params.get(pass.slots[0]), filters);
        let finish = Finish { bias: None, relu: false };
        let convolution = Convolution { from: dy, to: self.x, filters, strip: self.strip, finish };
        convolution.run::<S, A>(set, threads, work, &mut dx.as_mut_slice()[..self.x.elems()]);
        Ok(())
    }
}

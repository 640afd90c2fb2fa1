//! The three passes of a convolution, strip by strip: outputs from inputs, the input gradient from the output gradient
//! (the same computation), and the filter gradient from both.

use super::super::divide::{Items, Matrix, PerThread};
use super::super::moments::Moments;
use super::super::threads::Threads;
use super::super::vector::{Job, Vectors};
use super::folded::{self, Folded};
use super::outputs::{self, Convolution, Finish, Output};
use super::strip::{self, Order, PixelPrefetcher, Run, padded, tiles};
use super::transform::PassInput;

/// Returns the number of tiles per strip. It is large enough that reading the filters costs no more than reading the
/// tiles, and small enough that the tiles stay in the caches. Strips have nearly equal lengths, and the result is a
/// multiple of the `rows` that the product kernel computes at a time. `limits` are the least and the greatest number.
pub fn strip_len(limits: [usize; 2], rows: usize, ci: usize, co: usize, tiles: usize) -> usize {
    let wanted = (ci * co / (ci + co)).clamp(limits[0], limits[1]);
    let strips = tiles.div_ceil(wanted).max(1);
    tiles.div_ceil(strips).max(1).next_multiple_of(rows)
}

impl Convolution<'_> {
    /// Runs the pass. `workspace` is divided into equal parts, one for each thread's strip.
    pub fn run<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        threads: Threads,
        workspace: &mut [f32],
        y: &mut [f32],
        (moments, sums): (&mut [Moments], &mut [f64]),
    ) {
        let share = workspace.len() / threads.0;
        let (sample, channels) = (self.to.sample_elems(), self.to.blocks() * self.to.block);
        let totals = (PerThread::new(moments, channels), PerThread::new(sums, 2 * channels));
        let parts = (PerThread::new(workspace, share), Items::new(y, sample), totals);
        let folds = folded::suits::<S>(A, padded(self.from.desc.shape.c), padded(self.to.shape.c));
        threads.divide(self.to.n, parts, |samples, (workspace, y, (moments, sums))| {
            let from = self.from.skip(samples.start);
            let finish = self.finish.skip(&self.to, samples.start);
            let (moments, sums) = (Matrix::new(moments, channels), Matrix::new(sums, channels));
            let mut output = Output { y: Matrix::new(y, sample), moments, sums };
            if folds {
                return set.run(Folded { convolution: self, from, finish, samples: samples.len(), workspace, output });
            }
            for run in Run::each(samples.len() * tiles(&self.to, M), self.strip) {
                let (workspace, output) = (&mut *workspace, output.reborrow());
                set.run(ConvolvedStrip::<A, B, M> { convolution: self, from, finish, run, workspace, output });
            }
        });
    }
}

/// Computes inputs, products and outputs of a strip.
struct ConvolvedStrip<'a, const A: usize, const B: usize, const M: usize> {
    convolution: &'a Convolution<'a>,
    from: PassInput<'a>,
    finish: Finish<'a>,
    run: Run,
    workspace: &'a mut [f32],
    output: Output<'a>,
}

impl<const A: usize, const B: usize, const M: usize> Job for ConvolvedStrip<'_, A, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { convolution: Convolution { to, filters, strip, .. }, from, finish, run, workspace, output } = self;
        let (ci, co) = (padded(from.desc.shape.c), padded(to.shape.c));
        let [v_order, m_order] = [ci, co].map(|c| Order::by_place::<S>(c, *strip, M));
        let (v, m) = workspace.split_at_mut(A * B * v_order.place);
        v_order.clear_rest(&from.desc, ci, A * B, v);
        from.inputs::<S, A, B, M>(set, run, to, v_order, v);
        let ahead = (run, tiles(to, M));
        let mut inputs = PixelPrefetcher::new(&from.desc, from.data.as_ptr(), ahead, 1, A * B);
        let mut outputs = PixelPrefetcher::new(to, output.y.as_ptr(), ahead, 0, A * B);
        let mut norms = finish.gradient.map(|gradient| PixelPrefetcher::new(to, gradient.x.as_ptr(), ahead, 0, A * B));
        for place in 0..A * B {
            let (v, m) = (&v[place * v_order.place..], &mut m[place * m_order.place..]);
            strip::multiply(set, run.count, v, &filters[place * ci * co..][..ci * co], (ci, co), m, false);
            inputs.fetch(set);
            outputs.fetch(set);
            if let Some(norms) = &mut norms {
                norms.fetch(set);
            }
        }
        outputs::outputs::<S, A, B, M>(set, to, m, (run, 0..to.blocks()), m_order, finish, output);
    }
}

/// The filter gradient, from the inputs and the output gradient.
pub struct Correlation<'a> {
    pub x: PassInput<'a>,
    pub dy: PassInput<'a>,
    pub strip: usize,
}

impl Correlation<'_> {
    /// Sums the gradient of the transformed filters over all tiles. Each thread has its own sum.
    pub fn run<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        threads: Threads,
        workspace: &mut [f32],
        gradient: &mut [f32],
    ) {
        let tiles = tiles(&self.dy.desc, M);
        self.each_thread(threads, workspace, gradient, |x, dy, samples, workspace, gradient| {
            for run in Run::each(samples * tiles, self.strip) {
                set.run(CorrelatedStrip::<A, B, M> { x, dy, run, strip: self.strip, workspace, gradient });
            }
        });
    }

    /// Calls `f(x, dy, number of samples, workspace, gradient)` on each thread. x and dy start at the thread's first
    /// sample. Gradients start as zeros.
    pub fn each_thread(
        &self,
        threads: Threads,
        workspace: &mut [f32],
        gradient: &mut [f32],
        f: impl Fn(PassInput<'_>, PassInput<'_>, usize, &mut [f32], &mut [f32]) + Sync,
    ) {
        let [share, grid] = [workspace.len(), gradient.len()].map(|len| len / threads.0);
        gradient.fill(0.0);
        let parts = (PerThread::new(workspace, share), PerThread::new(gradient, grid));
        threads.divide(self.x.desc.n, parts, |samples, (workspace, gradient)| {
            f(self.x.skip(samples.start), self.dy.skip(samples.start), samples.len(), workspace, gradient);
        });
    }
}

/// Adds the contribution of a strip to the filter gradient.
struct CorrelatedStrip<'a, const A: usize, const B: usize, const M: usize> {
    x: PassInput<'a>,
    dy: PassInput<'a>,
    run: Run,
    strip: usize,
    workspace: &'a mut [f32],
    gradient: &'a mut [f32],
}

impl<const A: usize, const B: usize, const M: usize> Job for CorrelatedStrip<'_, A, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { x, dy, run, strip, workspace, gradient } = self;
        let (ci, co) = (padded(x.desc.shape.c), padded(dy.desc.shape.c));
        let [v_order, d_order] = [ci, co].map(|c| Order::by_place::<S>(c, strip, M));
        let (v, d) = workspace.split_at_mut(A * B * v_order.place);
        v_order.clear_rest(&x.desc, ci, A * B, v);
        d_order.clear_rest(&dy.desc, co, A * B, d);
        x.inputs::<S, A, B, M>(set, run, &dy.desc, v_order, v);
        dy.gradients::<S, A, B, M>(set, (run, 0..dy.desc.blocks()), d_order, d);
        let ahead = (run, tiles(&dy.desc, M));
        let mut inputs = PixelPrefetcher::new(&x.desc, x.data.as_ptr(), ahead, 1, A * B);
        let mut gradients = PixelPrefetcher::new(&dy.desc, dy.data.as_ptr(), ahead, 0, A * B);
        for place in 0..A * B {
            let du = &mut gradient[place * ci * co..][..ci * co];
            let (v, d) = (&v[place * v_order.place..], &d[place * d_order.place..]);
            strip::accumulate(set, run.count, v, d, (ci, co), du);
            inputs.fetch(set);
            gradients.fetch(set);
        }
    }
}

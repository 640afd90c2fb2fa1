//! The products of a linear layer with weights in panels: outputs, the input gradient, and the weight and bias
//! gradients.

use std::ops::Range;

use super::super::divide::{DividedMatrix, Items, Matrix, PerThread};
use super::super::panels::PANEL;
use super::super::register_tile::{by_rows, outer, rows};
use super::super::threads::Threads;
use super::super::vector::{Eight, Job, SIDE, Vectors, transpose};

/// Steps of a sum that are computed at a time. The first-level cache holds a panel's weights for this many inputs, the
/// weights that are prefetched, and the same number of values from a few samples.
pub const DEPTH: usize = 128;

/// Number of inputs whose gradients are computed at a time: the width of three panels.
pub const GROUP: usize = 3 * PANEL;

/// Samples, inputs and outputs of a layer.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub n: usize,
    pub inputs: usize,
    pub outputs: usize,
}

impl Sizes {
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Returns the outputs of a panel, without padding.
    pub fn outputs_of(&self, panel: usize) -> std::ops::Range<usize> {
        panel * PANEL..((panel + 1) * PANEL).min(self.outputs)
    }

    /// Returns the number of floats of all samples' outputs, stored in panels.
    pub fn in_panels(&self) -> usize {
        self.panels() * self.n * PANEL
    }

    /// Returns the floats of a thread's workspace for the input gradient: transposed weights and sums.
    pub fn input_gradient_workspace(&self) -> usize {
        GROUP * (DEPTH + self.n)
    }

    /// Returns the floats of the workspace for any pass.
    pub fn workspace(&self, threads: Threads) -> usize {
        let weights = self.in_panels() + threads.0 * self.n * GROUP;
        weights.max(threads.0 * self.input_gradient_workspace())
    }
}

/// y = x W^T + b, then ReLU if requested.
pub struct Forward<'a> {
    pub sizes: Sizes,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub relu: bool,
}

impl Forward<'_> {
    /// Computes `y`. `workspace` receives the outputs in panels.
    pub fn run(&self, set: Eight, threads: Threads, workspace: &mut [f32], y: &mut [f32]) {
        let sizes = self.sizes;
        let each = sizes.n * PANEL;
        let parts = (Items::new(workspace, each), DividedMatrix::by_columns(y, sizes.outputs, PANEL));
        threads.divide(sizes.panels(), parts, |panels, (sums, mut y)| {
            set.run(ForwardJob { layer: self, panels: panels.clone(), sums: &mut *sums });
            for (panel, sums) in panels.zip(sums.chunks_exact(each)) {
                let outputs = sizes.outputs_of(panel);
                let bias = self.bias.map(|bias| &bias[outputs.clone()]);
                for (n, sums) in sums.chunks_exact(PANEL).enumerate() {
                    finish(&sums[..outputs.len()], bias, self.relu, y.row(n, outputs.clone()));
                }
            }
        });
    }
}

/// Adds the bias and applies ReLU, which keeps NaN.
fn finish(sums: &[f32], bias: Option<&[f32]>, relu: bool, y: &mut [f32]) {
    y.copy_from_slice(sums);
    if let Some(bias) = bias {
        y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
    }
    if relu {
        y.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y });
    }
}

/// Computes the sums of the products for some panels.
struct ForwardJob<'a> {
    layer: &'a Forward<'a>,
    panels: Range<usize>,
    sums: &'a mut [f32],
}

impl Job for ForwardJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { layer: Forward { sizes: Sizes { n, inputs, .. }, x, w, .. }, panels, sums } = self;
        let (n, inputs) = (*n, *inputs);
        let at = |panel: usize, input: usize| (panel * inputs + input) * PANEL;
        for first in (0..inputs).step_by(DEPTH) {
            let depth = DEPTH.min(inputs - first);
            for (panel, sums) in panels.clone().zip(sums.chunks_exact_mut(n * PANEL)) {
                let u = &w[at(panel, first)..][..depth * PANEL];
                let next = if panel + 1 < panels.end { at(panel + 1, first) } else { at(panels.start, first + depth) };
                let mut ahead = WeightPrefetcher::new(w, next, depth, 0);
                let each = (depth * S::ROWS).div_ceil(n);
                by_rows!(n, S::ROWS, |row| tile::<S, 2>(
                    set,
                    (&x[row * inputs + first..], inputs),
                    u,
                    &mut sums[row * PANEL..],
                    first > 0,
                    (&mut ahead, each)
                ));
            }
        }
    }
}

/// Computes the sums of T samples for a panel, or adds to them if `add` is set. Also prefetches the weights of `each`
/// more inputs.
#[inline(always)]
pub fn tile<S: Vectors, const T: usize, const C: usize>(
    set: S,
    x: (&[f32], usize),
    u: &[f32],
    sums: &mut [f32],
    add: bool,
    (ahead, each): (&mut WeightPrefetcher, usize),
) {
    ahead.fetch(set, each);
    rows::<S, T, C>(set, x, u, (sums, PANEL), add);
}

// The input gradient. Each thread computes some inputs and processes a piece of the outputs at a time. It transposes
// the weights of the piece, so that inputs are next to each other.

/// The input gradient dx = dy W.
pub struct InputGradient<'a> {
    pub sizes: Sizes,
    pub dy: &'a [f32],
    pub w: &'a [f32],
}

impl InputGradient<'_> {
    /// Computes `dx`. `workspace` is divided into a part for each thread.
    pub fn run(&self, set: Eight, threads: Threads, workspace: &mut [f32], dx: &mut [f32]) {
        let Sizes { inputs, .. } = self.sizes;
        let parts = (
            PerThread::new(workspace, self.sizes.input_gradient_workspace()),
            DividedMatrix::by_columns(dx, inputs, PANEL),
        );
        threads.divide(inputs.div_ceil(PANEL), parts, |blocks, (workspace, dx)| {
            set.run(InputGradientJob { layer: self, set, blocks, workspace, dx });
        });
    }
}

/// Computes the gradients of [`PANEL`] inputs per block, for some blocks.
struct InputGradientJob<'a> {
    layer: &'a InputGradient<'a>,
    set: Eight,
    blocks: Range<usize>,
    workspace: &'a mut [f32],
    dx: Matrix<'a, f32>,
}

impl Job for InputGradientJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { layer, set: avx2, blocks, workspace, mut dx } = self;
        let Sizes { n, inputs, outputs } = layer.sizes;
        let (transposed, sums) = workspace.split_at_mut(GROUP * DEPTH);
        let end = (blocks.end * PANEL).min(inputs);
        for first in (blocks.start * PANEL..end).step_by(GROUP) {
            let group = first..(first + GROUP).min(end);
            let count = group.len().div_ceil(PANEL);
            for output in (0..outputs).step_by(DEPTH) {
                let depth = DEPTH.min(outputs - output);
                layer.transpose_group(avx2, output..output + depth, group.clone(), transposed);
                let (next, from) = if output + depth < outputs { (output + depth, first) } else { (0, group.end) };
                let next = (next / PANEL * inputs + from) * PANEL;
                let mut ahead = WeightPrefetcher::new(layer.w, next, group.len(), inputs * PANEL);
                let each = (depth.div_ceil(PANEL) * group.len() * S::ROWS).div_ceil(count * n);
                for (u, sums) in
                    transposed.chunks_exact(DEPTH * PANEL).zip(sums.chunks_exact_mut(n * PANEL)).take(count)
                {
                    by_rows!(n, S::ROWS, |row| tile::<S, 2>(
                        set,
                        (&layer.dy[row * outputs + output..], outputs),
                        &u[..depth * PANEL],
                        &mut sums[row * PANEL..],
                        output > 0,
                        (&mut ahead, each)
                    ));
                }
            }
            for (i, sums) in sums.chunks_exact(n * PANEL).enumerate().take(count) {
                let block = first + i * PANEL..(first + (i + 1) * PANEL).min(group.end);
                for (n, sums) in sums.chunks_exact(PANEL).enumerate() {
                    dx.row(n, block.clone()).copy_from_slice(&sums[..block.len()]);
                }
            }
        }
    }
}

impl InputGradient<'_> {
    /// Transposes the weights that connect a group of inputs with some outputs. The outputs are whole panels, except at
    /// the end. Writes blocks of [`PANEL`] inputs with [`DEPTH`] outputs each.
    #[inline(always)]
    fn transpose_group(&self, set: Eight, outputs: Range<usize>, group: Range<usize>, transposed: &mut [f32]) {
        let panels = outputs.start / PANEL..outputs.end.div_ceil(PANEL);
        for (i, panel) in panels.enumerate() {
            let from = &self.w[(panel * self.sizes.inputs + group.start) * PANEL..][..group.len() * PANEL];
            for input in (0..group.len()).step_by(SIDE) {
                let to = &mut transposed[(input / PANEL * DEPTH + i * PANEL) * PANEL + input % PANEL..];
                for output in (0..PANEL).step_by(SIDE) {
                    transpose(set, &from[input * PANEL + output..], &mut to[output * PANEL..], PANEL);
                }
            }
        }
    }
}

// The weight and bias gradients. Each thread computes some panels and processes a group of inputs at a time. The values
// of the group stay in the first-level cache for all its panels.

/// The gradients dW = dy^T x, and db = the sum of dy over samples.
pub struct WeightGradient<'a> {
    pub sizes: Sizes,
    pub x: &'a [f32],
    pub dy: &'a [f32],
}

impl WeightGradient<'_> {
    /// Computes `dw` and `db`. `workspace` receives dy in panels and each thread's group of inputs.
    pub fn run(&self, set: Eight, threads: Threads, workspace: &mut [f32], dw: &mut [f32], db: Option<&mut [f32]>) {
        let Sizes { n, inputs, .. } = self.sizes;
        let (dy, groups) = workspace.split_at_mut(self.sizes.in_panels());
        let gradients = (Items::new(dw, inputs * PANEL), db.map(|db| Items::new(db, PANEL)));
        let parts = (Items::new(dy, n * PANEL), PerThread::new(groups, n * GROUP), gradients);
        threads.divide(self.sizes.panels(), parts, |panels, (dy, group, (dw, db))| {
            let mut db = db.map(|db| db.chunks_mut(PANEL));
            for (panel, dy) in panels.zip(dy.chunks_exact_mut(n * PANEL)) {
                let sums = self.panel(panel, dy);
                if let Some(db) = db.as_mut().and_then(Iterator::next) {
                    db.iter_mut().zip(sums).for_each(|(db, sum)| *db = sum as f32);
                }
            }
            set.run(WeightGradientJob { layer: self, dy, group, dw });
        });
    }

    /// Copies the gradients of a panel's outputs to `to`, with zeros for padding. Returns their sums over the samples.
    fn panel(&self, panel: usize, to: &mut [f32]) -> [f64; PANEL] {
        let outputs: Range<usize> = self.sizes.outputs_of(panel);
        let mut sums = [0.0; PANEL];
        for (row, to) in self.dy.chunks_exact(self.sizes.outputs).zip(to.chunks_exact_mut(PANEL)) {
            let (there, rest) = to.split_at_mut(outputs.len());
            there.copy_from_slice(&row[outputs.clone()]);
            rest.fill(0.0);
            sums.iter_mut().zip(&*to).for_each(|(sum, dy)| *sum += f64::from(*dy));
        }
        sums
    }
}

struct WeightGradientJob<'a> {
    layer: &'a WeightGradient<'a>,
    dy: &'a [f32],
    group: &'a mut [f32],
    dw: &'a mut [f32],
}

impl Job for WeightGradientJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { layer: WeightGradient { sizes: Sizes { n, inputs, .. }, x, .. }, dy, group, dw } = self;
        let (n, inputs) = (*n, *inputs);
        for first in (0..inputs).step_by(GROUP) {
            let width = GROUP.min(inputs - first);
            for (to, x) in group.chunks_exact_mut(GROUP).zip(x.chunks_exact(inputs)) {
                to[..width].copy_from_slice(&x[first..][..width]);
            }
            for (dy, dw) in dy.chunks_exact(n * PANEL).zip(dw.chunks_exact_mut(inputs * PANEL)) {
                // The gradient of the same inputs in the next panel. The address may be beyond the end, because it is
                // only a prefetch hint.
                let next = dw.as_ptr().wrapping_add((inputs + first) * PANEL);
                let dw = &mut dw[first * PANEL..][..width * PANEL];
                for sample in (0..n).step_by(DEPTH) {
                    let count = DEPTH.min(n - sample);
                    let (x, dy) = (&group[sample * GROUP..], &dy[sample * PANEL..]);
                    by_rows!(width, S::ROWS, |row| gradient_tile::<S, 2>(
                        set,
                        count,
                        &x[row..],
                        dy,
                        &mut dw[row * PANEL..],
                        (sample == 0).then(|| next.wrapping_add(row * PANEL))
                    ));
                }
            }
        }
    }
}

/// Computes the weight gradients of T inputs in a panel from `count` samples. For the first samples of the batch, the
/// caller passes `next`. Then the function overwrites `dw` and prefetches the rows at `next`. Otherwise, it adds to
/// `dw`.
#[inline(always)]
fn gradient_tile<S: Vectors, const T: usize, const C: usize>(
    set: S,
    count: usize,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    next: Option<*const f32>,
) {
    if let Some(next) = next {
        (0..T).for_each(|row| set.prefetch(next.wrapping_add(row * PANEL)));
    }
    outer::<S, T, C>(set, count, (x, GROUP), (dy, PANEL), dw, next.is_none());
}

// Weights for the next products are prefetched during the current ones. The hardware prefetcher does not recognise the
// pattern, because the pieces are short.

/// Prefetches the weights of some inputs, panel after panel, a few inputs per call. An input's weights in a panel fill
/// a cache line.
pub struct WeightPrefetcher {
    next: *const f32,
    done: usize,
    inputs: usize,
    /// Number of floats from a panel to the next.
    panel: usize,
}

impl WeightPrefetcher {
    /// Begins with `inputs` inputs at element `first` of `w`, and continues with the same inputs in the next panels,
    /// which are `panel` elements apart. Addresses may be beyond the end.
    pub fn new(w: &[f32], first: usize, inputs: usize, panel: usize) -> Self {
        Self { next: w.as_ptr().wrapping_add(first), done: 0, inputs, panel }
    }

    /// Prefetches the weights of the next `count` inputs.
    #[inline(always)]
    pub fn fetch<S: Vectors>(&mut self, set: S, mut count: usize) {
        while count > 0 {
            let now = count.min(self.inputs - self.done);
            for input in self.done..self.done + now {
                set.prefetch(self.next.wrapping_add(input * PANEL));
            }
            (self.done, count) = (self.done + now, count - now);
            if self.done == self.inputs {
                (self.done, self.next) = (0, self.next.wrapping_add(self.panel));
            }
        }
    }
}

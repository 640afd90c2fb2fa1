//! Multi-head self-attention. Queries are processed in small groups, so that only a small part of the attention weights
//! is in memory. Backward recomputes the weights.
//!
//! A head's channels fill whole blocks, so its queries, keys, values and outputs are four contiguous pieces of memory
//! with the same layout: (blocks, positions, channels in a block).

use std::rc::Rc;

use net::Attention;

use super::buf::{AlignedBuf, Scratch};
use super::device::Cpu;
use super::divide::{Items, PerThread, SharedSlice};
use super::isa::Isa;
use super::lanes::LANES;
use super::register_tile::{UNROLLED, by_rows, outer, rows};
use super::relayout;
use super::threads::Threads;
use super::vector::{Eight, Job, Portable, Sixteen, Vectors, exp};
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Number of queries that a thread processes together. Only their attention weights are in memory.
const QUERIES: usize = 32;

/// Positions and channels are padded to a multiple of this number, which is the width of the widest panel.
const WIDEST: usize = 32;

/// Sizes of a head.
#[derive(Clone, Copy)]
struct Sizes {
    positions: usize,
    channels: usize,
    /// Channels per block in all tensors.
    block: usize,
    /// Factor that multiplies the products of queries and keys.
    scale: f32,
}

impl Sizes {
    /// Returns the number of elements in the head's queries, which equals that in its keys, values or outputs.
    fn elems(&self) -> usize {
        self.positions * self.channels
    }

    fn padded_positions(&self) -> usize {
        self.positions.next_multiple_of(WIDEST)
    }

    fn padded_channels(&self) -> usize {
        self.channels.next_multiple_of(WIDEST)
    }

    /// Returns the number of elements in a padded (positions, channels) matrix.
    fn matrix(&self) -> usize {
        self.padded_positions() * self.padded_channels()
    }

    /// Returns the number of attention weights for [`QUERIES`] queries.
    fn weights(&self) -> usize {
        QUERIES * self.padded_positions()
    }

    /// Returns the number of elements in a thread's workspace, which must fit [`Forward`], and with `train` also
    /// [`Backward`].
    fn workspace(&self, train: bool) -> usize {
        let (matrices, weights) = if train { (7, 2) } else { (3, 1) };
        matrices * self.matrix() + weights * self.weights() + QUERIES * self.padded_channels()
    }

    /// Calls `f(position, channel, index)` for every value in a tensor with the head's layout.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        for first in (0..self.channels).step_by(self.block) {
            for position in 0..self.positions {
                for lane in 0..self.block {
                    f(position, first + lane, first * self.positions + position * self.block + lane);
                }
            }
        }
    }

    /// Copies a tensor from the head's layout to a row per position, with padded channels.
    #[inline(always)]
    fn to_rows(self, from: &[f32], to: &mut [f32]) {
        let (from, width) = (&from[..self.elems()], self.padded_channels());
        to.fill(0.0);
        self.each(|position, channel, at| to[position * width + channel] = from[at]);
    }

    /// Copies a tensor from the head's layout to panels that are `width` channels wide. A panel's rows are the padded
    /// positions.
    #[inline(always)]
    fn to_panels(self, from: &[f32], to: &mut [f32], width: usize) {
        let (from, rows) = (&from[..self.elems()], self.padded_positions());
        to.fill(0.0);
        self.each(|position, channel, at| to[panel_index(position, channel, width, rows)] = from[at]);
    }

    /// Copies a tensor from the head's layout to panels that are `width` positions wide. A panel has `rows` rows, and
    /// each row is a channel.
    #[inline(always)]
    fn to_transposed_panels(self, from: &[f32], to: &mut [f32], width: usize, rows: usize) {
        let from = &from[..self.elems()];
        to.fill(0.0);
        self.each(|position, channel, at| to[panel_index(channel, position, width, rows)] = from[at]);
    }

    /// Copies from panels that are `width` channels wide to the head's layout.
    #[inline(always)]
    fn store_panels(self, from: &[f32], to: &mut [f32], width: usize) {
        let (to, rows) = (&mut to[..self.elems()], self.padded_positions());
        self.each(|position, channel, at| to[at] = from[panel_index(position, channel, width, rows)]);
    }

    /// Copies rows with padded channels to the head's layout. The first row belongs to the position `first`.
    #[inline(always)]
    fn store_rows(self, from: &[f32], to: &mut [f32], first: usize) {
        for (row, from) in from.chunks_exact(self.padded_channels()).enumerate() {
            for (block, values) in from[..self.channels].chunks_exact(self.block).enumerate() {
                to[(block * self.positions + first + row) * self.block..][..self.block].copy_from_slice(values);
            }
        }
    }
}

/// Returns the index of an element in panels with `width` columns and `rows` rows.
#[inline(always)]
fn panel_index(row: usize, column: usize, width: usize, rows: usize) -> usize {
    (column / width * rows + row) * width + column % width
}

/// The instruction set that the kernels use.
#[derive(Clone, Copy)]
enum Set {
    Portable(Portable),
    Eight(Eight),
    Sixteen(Sixteen),
}

impl Set {
    fn of(cpu: &Cpu) -> Self {
        let wide = Sixteen::detect().filter(|_| cpu.isa >= Isa::Avx512).map(Self::Sixteen);
        wide.or(Eight::detect().map(Self::Eight)).unwrap_or(Self::Portable(Portable))
    }

    fn run<J: Job>(self, job: J) -> J::Output {
        match self {
            Self::Portable(set) => set.run(job),
            Self::Eight(set) => set.run(job),
            Self::Sixteen(set) => set.run(job),
        }
    }
}

struct Plan {
    threads: Threads,
    set: Set,
    y: TensorDesc,
    heads: usize,
    sizes: Sizes,
    /// For each query (in each sample and head): the greatest product with a key, and 1 / the sum of exponentials in
    /// the softmax.
    statistics: Vec<[f32; 2]>,
    /// Number of elements in a thread's workspace.
    workspace: usize,
    scratch: Rc<Scratch>,
}

pub(super) fn plan(cpu: &Cpu, op: &Attention, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (x, y) = (r.x[0], relayout::output_layout(cpu, &r.x[0], r.output()?));
    let (channels, scale) = (op.head_channels(x.shape.c), op.scale(x.shape.c) as f32);
    let sizes = Sizes { positions: x.shape.plane(), channels, block: x.block, scale };
    let workspace = sizes.workspace(r.train);
    cpu.scratch.reserve(cpu.threads.0 * workspace, r.name)?;
    Ok(Box::new(Plan {
        threads: cpu.threads,
        set: Set::of(cpu),
        y,
        heads: op.heads,
        sizes,
        statistics: vec![[0.0; 2]; x.n * op.heads * sizes.positions],
        workspace,
        scratch: cpu.scratch.clone(),
    }))
}

impl Plan {
    /// Returns the number of heads, counted over all samples.
    fn items(&self) -> usize {
        self.y.n * self.heads
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn state_bytes(&self) -> usize {
        size_of_val(&self.statistics[..])
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn implementation(&self) -> String {
        "own products".into()
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let mut statistics = std::mem::take(&mut self.statistics);
        let (sizes, set, heads) = (self.sizes, self.set, self.heads);
        let (x, mut scratch) = (x[0].as_slice(), self.scratch.borrow());
        let divided = (
            Items::new(&mut y.as_mut_slice()[..self.y.elems()], sizes.elems()),
            Items::new(&mut statistics, sizes.positions),
            PerThread::new(scratch.as_mut_slice(), self.workspace),
        );
        self.threads.divide(self.items(), divided, |items, (y, statistics, workspace)| {
            let own = y.chunks_exact_mut(sizes.elems()).zip(statistics.chunks_exact_mut(sizes.positions));
            for (item, (y, statistics)) in items.zip(own) {
                let inputs = parts(item, heads, &sizes).map(|at| &x[at..][..sizes.elems()]);
                set.run(Forward { sizes, inputs, statistics, y, workspace: &mut *workspace });
            }
        });
        drop(scratch);
        self.statistics = statistics;
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (sizes, set, heads, statistics) = (self.sizes, self.set, self.heads, &self.statistics);
        let (x, dy, mut scratch) = (g.x[0].as_slice(), g.dy.as_slice(), self.scratch.borrow());
        let dx = SharedSlice::new(&mut dx.as_mut_slice()[..3 * self.y.elems()]);
        let workspaces = PerThread::new(scratch.as_mut_slice(), self.workspace);
        self.threads.divide(self.items(), workspaces, |items, workspace| {
            for item in items {
                let at = parts(item, heads, &sizes);
                let inputs = at.map(|at| &x[at..][..sizes.elems()]);
                // SAFETY: each head has its own three ranges in each sample, and only one thread processes a head.
                let gradients = at.map(|at| unsafe { dx.part(at..at + sizes.elems()) });
                let dy = &dy[item * sizes.elems()..][..sizes.elems()];
                let statistics = &statistics[item * sizes.positions..][..sizes.positions];
                set.run(Backward { sizes, inputs, statistics, dy, gradients, workspace: &mut *workspace });
            }
        });
        Ok(())
    }
}

/// Returns the input indices where the queries, keys and values of a head begin. `item` counts the heads over all
/// samples.
fn parts(item: usize, heads: usize, sizes: &Sizes) -> [usize; 3] {
    let (sample, head) = (item / heads, item % heads);
    [0, 1, 2].map(|part| ((3 * sample + part) * heads + head) * sizes.elems())
}

/// Computes `to = a u` for `count` rows. `a_step` and `step` are the row strides of `a` and `to`. The panels `u` have
/// `depth` rows each.
#[inline(always)]
fn product<S: Vectors>(
    set: S,
    count: usize,
    (a, a_step): (&[f32], usize),
    (u, depth): (&[f32], usize),
    (to, step): (&mut [f32], usize),
) {
    let width = 2 * S::LANES;
    for (panel, u) in u.chunks_exact(depth * width).enumerate() {
        by_rows!(count, S::ROWS, |row| rows::<S, 2>(
            set,
            (&a[row * a_step..], a_step),
            u,
            (&mut to[row * step + panel * width..], step),
            false
        ));
    }
}

/// Computes `sums += transpose(weights) d` for `count` queries. `sums` consists of panels with a row per key.
#[inline(always)]
fn add_outer<S: Vectors>(set: S, sizes: &Sizes, count: usize, weights: &[f32], d: &[f32], sums: &mut [f32]) {
    let (width, positions, channels) = (2 * S::LANES, sizes.padded_positions(), sizes.padded_channels());
    for (panel, sums) in sums.chunks_exact_mut(positions * width).enumerate() {
        by_rows!(sizes.positions, S::ROWS, |row| outer::<S, 2>(
            set,
            count,
            (&weights[row..], positions),
            (&d[panel * width..], channels),
            &mut sums[row * width..],
            true
        ));
    }
}

/// Replaces a query's products with all keys by their softmax. Returns the greatest product, and 1 / the sum of
/// exponentials.
#[inline(always)]
fn softmax(row: &mut [f32], sizes: &Sizes) -> [f32; 2] {
    row[sizes.positions..].fill(f32::NEG_INFINITY);
    let mut most = [f32::NEG_INFINITY; LANES];
    for values in row.as_chunks::<LANES>().0 {
        most.iter_mut().zip(values).for_each(|(most, value)| *most = value.max(*most));
    }
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0; LANES];
    for values in row.as_chunks_mut::<LANES>().0 {
        for (value, sum) in values.iter_mut().zip(&mut sums) {
            *value = exp((*value - most) * sizes.scale);
            *sum += *value;
        }
    }
    let inverse = 1.0 / sums.iter().sum::<f32>();
    row.iter_mut().for_each(|value| *value *= inverse);
    [most, inverse]
}

/// Replaces a query's products with all keys by the softmax that [`softmax`] computed, and replaces the gradients with
/// respect to the softmax by gradients with respect to the products.
#[inline(always)]
fn softmax_back(row: &mut [f32], gradients: &mut [f32], [most, inverse]: [f32; 2], sizes: &Sizes) {
    row[sizes.positions..].fill(f32::NEG_INFINITY);
    let mut sums = [0.0; LANES];
    for (values, gradients) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(gradients.as_chunks::<LANES>().0) {
        for ((value, gradient), sum) in values.iter_mut().zip(gradients).zip(&mut sums) {
            *value = exp((*value - most) * sizes.scale) * inverse;
            *sum = value.mul_add(*gradient, *sum);
        }
    }
    let mean = sums.iter().sum::<f32>();
    for (gradient, value) in gradients.iter_mut().zip(row) {
        *gradient = *value * (*gradient - mean) * sizes.scale;
    }
}

/// Splits matrices off a workspace.
struct Workspace<'a>(&'a mut [f32]);

impl<'a> Workspace<'a> {
    fn take(&mut self, elems: usize) -> &'a mut [f32] {
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut(elems);
        self.0 = rest;
        taken
    }
}

/// A head's forward pass.
struct Forward<'a> {
    sizes: Sizes,
    /// Queries, keys and values.
    inputs: [&'a [f32]; 3],
    statistics: &'a mut [[f32; 2]],
    y: &'a mut [f32],
    workspace: &'a mut [f32],
}

impl Job for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { sizes, inputs: [queries, keys, values], statistics, y, workspace } = self;
        let (positions, channels) = (sizes.padded_positions(), sizes.padded_channels());
        let (width, depth) = (2 * S::LANES, sizes.channels.next_multiple_of(UNROLLED));
        let mut workspace = Workspace(workspace);
        let q = workspace.take(sizes.matrix());
        let k = &mut workspace.take(sizes.matrix())[..positions * depth];
        let v = workspace.take(sizes.matrix());
        let (weights, result) = (workspace.take(sizes.weights()), workspace.take(QUERIES * channels));
        sizes.to_rows(queries, q);
        sizes.to_transposed_panels(keys, k, width, depth);
        sizes.to_panels(values, v, width);
        for first in (0..sizes.positions).step_by(QUERIES) {
            let count = QUERIES.min(sizes.positions - first);
            product(set, count, (&q[first * channels..], channels), (k, depth), (weights, positions));
            let rows = weights.chunks_exact_mut(positions).zip(&mut statistics[first..first + count]);
            rows.for_each(|(row, own)| *own = softmax(row, &sizes));
            product(set, count, (weights, positions), (v, positions), (result, channels));
            sizes.store_rows(&result[..count * channels], y, first);
        }
    }
}

/// A head's backward pass.
struct Backward<'a> {
    sizes: Sizes,
    /// Queries, keys and values.
    inputs: [&'a [f32]; 3],
    statistics: &'a [[f32; 2]],
    dy: &'a [f32],
    /// Gradients for queries, keys and values.
    gradients: [&'a mut [f32]; 3],
    workspace: &'a mut [f32],
}

impl Job for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { sizes, inputs: [queries, keys, values], statistics, dy, gradients, workspace } = self;
        let (positions, channels) = (sizes.padded_positions(), sizes.padded_channels());
        let (width, depth) = (2 * S::LANES, sizes.channels.next_multiple_of(UNROLLED));
        let mut workspace = Workspace(workspace);
        let [q, d, k, dk, dv] = [(); 5].map(|()| workspace.take(sizes.matrix()));
        let [k_turned, v_turned] = [(); 2].map(|()| &mut workspace.take(sizes.matrix())[..positions * depth]);
        let [weights, slopes] = [(); 2].map(|()| workspace.take(sizes.weights()));
        let dq = workspace.take(QUERIES * channels);
        sizes.to_rows(queries, q);
        sizes.to_rows(dy, d);
        sizes.to_panels(keys, k, width);
        sizes.to_transposed_panels(keys, k_turned, width, depth);
        sizes.to_transposed_panels(values, v_turned, width, depth);
        dk.fill(0.0);
        dv.fill(0.0);
        let [queries, keys, values] = gradients;
        for first in (0..sizes.positions).step_by(QUERIES) {
            let count = QUERIES.min(sizes.positions - first);
            let (q, d) = (&q[first * channels..], &d[first * channels..]);
            product(set, count, (q, channels), (k_turned, depth), (weights, positions));
            product(set, count, (d, channels), (v_turned, depth), (slopes, positions));
            let rows = weights.chunks_exact_mut(positions).zip(slopes.chunks_exact_mut(positions));
            for ((row, slopes), statistics) in rows.zip(&statistics[first..first + count]) {
                softmax_back(row, slopes, *statistics, &sizes);
            }
            product(set, count, (slopes, positions), (k, positions), (dq, channels));
            sizes.store_rows(&dq[..count * channels], queries, first);
            add_outer(set, &sizes, count, slopes, q, dk);
            add_outer(set, &sizes, count, weights, d, dv);
        }
        sizes.store_panels(dk, keys, width);
        sizes.store_panels(dv, values, width);
    }
}

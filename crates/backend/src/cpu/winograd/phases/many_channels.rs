//! Convolutions at stride 2 with so many channels that the transformed filters, or their gradient, do not fit into the
//! caches. As in [`many_channels`](super::super::many_channels), the transformed inputs of many tiles are kept, and
//! each thread computes a few output channels for all of these tiles at a time.

use super::super::super::divide::{DividedMatrix, Matrix};
use super::super::super::threads::Threads;
use super::super::super::vector::{Job, Vectors};
use super::super::filters::Filters;
use super::super::many_channels::{Workspace, blocks, without_totals};
use super::super::outputs::Finish;
use super::super::strip::{Order, PAD, Run, padded, tiles};
use super::super::transform::PassInput;
use super::grid::{CELLS, FILTERS, LINE, LINES, TILE_COLUMNS, Tiles};
use super::passes::{self, Direction};
use super::transform::{PassOutput, gradients};
use crate::TensorDesc;

/// Number of tiles that are transformed at a time, rounded up to strips.
pub const TILES: usize = 128;

/// Returns the sizes of a pass's workspace. `channels` is the padded number of channels that are read, `strip` and
/// `tiles` are the numbers of tiles in a strip and in the batch.
fn room<S: Vectors>(
    direction: Direction,
    channels: usize,
    (strip, tiles): (usize, usize),
    threads: Threads,
) -> Workspace {
    let [read, computed] = direction.grid_sizes();
    Workspace::new::<S>(threads, [read, FILTERS, computed], channels, (strip, tiles, TILES), TILE_COLUMNS)
}

/// Returns the workspace for all passes in floats. `ci` and `co` are the padded numbers of channels, and `of` are the
/// numbers of tiles in a strip and in the batch.
pub fn workspace<S: Vectors>([ci, co]: [usize; 2], of: (usize, usize), threads: Threads) -> usize {
    let backward = room::<S>(Direction::Backward, co, of, threads).floats();
    room::<S>(Direction::Forward, ci, of, threads).floats().max(backward)
}

/// A pass in which threads divide the output channels. `from` is its input: x, or dy for the input gradient.
pub struct ManyChannels<'a, S> {
    pub set: S,
    pub threads: Threads,
    pub direction: Direction,
    pub from: PassInput<'a>,
    pub filters: Filters,
    /// Tiles per strip.
    pub strip: usize,
}

/// A strip of transformed inputs.
struct Strip<'a> {
    tiles: &'a Tiles,
    order: Order,
    v: &'a [f32],
}

impl<S: Vectors> ManyChannels<'_, S> {
    /// Computes `to` (y from x, or dx from dy) with plain filters `w`.
    pub fn convolve(&self, to: &TensorDesc, w: &[f32], finish: Finish<'_>, workspace: &mut [f32], y: &mut [f32]) {
        let outputs = if self.direction == Direction::Forward { to } else { &self.from.desc };
        let parts = DividedMatrix::by_columns(y, to.sample_elems(), PAD * to.shape.plane());
        self.each_group(outputs, to, workspace, parts, |group, u, m, strips, y| {
            self.filters.transform_group::<S, LINES, LINE, TILE_COLUMNS>(self.set, group, w, u);
            for strip in strips {
                let (m, y) = (&mut *m, y.reborrow());
                self.set.run(ProductsJob { direction: self.direction, to, group, finish, strip, u, m, y });
            }
        });
    }

    /// Computes the filter gradient in plain order from x and `dy`.
    pub fn correlate(&self, dy: PassInput<'_>, workspace: &mut [f32], dw: &mut [f32]) {
        dw.fill(0.0);
        self.each_group(&dy.desc, &dy.desc, workspace, self.filters.by_columns(dw, PAD), |group, u, d, strips, dw| {
            u.fill(0.0);
            for strip in strips {
                self.set.run(GradientJob { dy, group, strip, d: &mut *d, du: &mut *u });
            }
            self.filters.add_group::<S, LINES, LINE, TILE_COLUMNS>(self.set, group, u, dw);
        });
    }

    /// Calls [`Workspace::each_group`] for all groups of channels in `to`. `outputs` defines the tiles, and `f` gets the
    /// thread's part of `parts` last.
    fn each_group(
        &self,
        outputs: &TensorDesc,
        to: &TensorDesc,
        workspace: &mut [f32],
        parts: DividedMatrix<'_, f32>,
        f: impl Fn(usize, &mut [f32], &mut [f32], &mut dyn Iterator<Item = Strip<'_>>, &mut Matrix<'_, f32>) + Sync,
    ) {
        let (channels, all) = (padded(self.from.desc.shape.c), to.n * tiles(outputs, TILE_COLUMNS));
        let room = room::<S>(self.direction, channels, (self.strip, all), self.threads);
        let order = Order::by_place::<S>(channels, self.strip, TILE_COLUMNS);
        let runs: Vec<Tiles> = Run::each(all, self.strip).map(|run| Tiles::new(outputs, run)).collect();
        let transform = |tiles: &Tiles, v: &mut [f32]| {
            self.set.run(InputsJob { direction: self.direction, from: self.from, tiles, order, v });
        };
        let (groups, output) = (padded(to.shape.c) / PAD, without_totals(parts));
        room.each_group(&runs, groups, workspace, output, transform, |group, u, m, strips, output| {
            f(group, u, m, &mut strips.map(|(tiles, v)| Strip { tiles, order, v }), &mut output.y);
        });
    }
}

/// Transforms the inputs of a strip.
struct InputsJob<'a> {
    direction: Direction,
    from: PassInput<'a>,
    tiles: &'a Tiles,
    order: Order,
    v: &'a mut [f32],
}

impl Job for InputsJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { direction, from, tiles, order, v } = self;
        direction.inputs(set, from, tiles, order, v);
    }
}

/// Computes a strip's products and outputs in a group of channels.
struct ProductsJob<'a> {
    direction: Direction,
    to: &'a TensorDesc,
    group: usize,
    finish: Finish<'a>,
    strip: Strip<'a>,
    u: &'a [f32],
    m: &'a mut [f32],
    y: Matrix<'a, f32>,
}

impl Job for ProductsJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { direction, to, group, finish, strip: Strip { tiles, order, v }, u, m, y } = self;
        let own = Order { place: m.len() / direction.grid_sizes()[1], ..Order::by_place::<S>(PAD, 0, TILE_COLUMNS) };
        let channels = (u.len() / FILTERS / PAD, PAD);
        passes::multiply(set, direction, tiles, (v, order), (u, channels), (m, own), &mut []);
        direction.outputs(
            set,
            PassOutput { desc: to, blocks: blocks::<S>(to, group), order: own, finish },
            tiles,
            m,
            y,
        );
    }
}

/// Adds a strip's contribution to the filter gradient for a group of channels.
struct GradientJob<'a> {
    dy: PassInput<'a>,
    group: usize,
    strip: Strip<'a>,
    d: &'a mut [f32],
    du: &'a mut [f32],
}

impl Job for GradientJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { dy, group, strip: Strip { tiles, order, v }, d, du } = self;
        let blocks = blocks::<S>(&dy.desc, group);
        if blocks.len() * S::LANES < PAD {
            d.fill(0.0);
        }
        let own = Order { place: d.len() / CELLS, ..Order::by_place::<S>(PAD, 0, TILE_COLUMNS) };
        gradients(set, dy, (tiles, blocks), own, d);
        let channels = (du.len() / FILTERS / PAD, PAD);
        passes::accumulate(set, tiles, (v, order), (d, own), channels, du, &mut []);
    }
}

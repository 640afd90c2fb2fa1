//! Convolutions by phases with so many channels that the transformed filters, or their gradient, do not fit into the
//! caches. As in [`wide`](super::super::wide), the transformed inputs of many tiles are kept, and each thread computes
//! a few output channels for all of these tiles at a time.

use super::super::super::divide::{Divided, Items, Matrix, PerThread};
use super::super::super::threads::Threads;
use super::super::super::vector::{Job, Vectors};
use super::super::filters::Filters;
use super::super::outputs::Finish;
use super::super::strip::{Order, Run, tiles};
use super::super::strip::{PAD, padded};
use super::super::transform::Side;
use super::super::wide::blocks;
use super::grid::{CELLS, FILTERS, LINE, LINES, Tiles, WIDE};
use super::passes::{self, Way};
use super::transform::To;
use super::transform::gradients;
use crate::TensorDesc;

/// Number of tiles with inputs on the grid at a time, rounded up to strips.
pub const TILES: usize = 128;

/// Floats per thread for the filters of [`PAD`] output channels, and for these channels' spots in a strip.
#[derive(Clone, Copy)]
struct Own {
    filters: usize,
    spots: usize,
}

impl Own {
    fn of<S: Vectors>(channels: usize, spots: usize, strip: usize) -> Self {
        Self { filters: FILTERS * channels * PAD, spots: spots * Order::by_place::<S>(PAD, strip, WIDE).place }
    }

    fn len(self) -> usize {
        self.filters + self.spots
    }
}

/// Returns the workspace for all passes in floats. `ci` and `co` are padded channels, `strip` and `tiles` are the
/// numbers of tiles in a strip and in the batch.
pub fn work<S: Vectors>([ci, co]: [usize; 2], (strip, tiles): (usize, usize), threads: Threads) -> usize {
    let room = |channels: usize, [spots, others]: [usize; 2]| {
        let inputs = spots * Order::by_place::<S>(channels, strip, WIDE).place;
        tiles.min(TILES).div_ceil(strip) * inputs + threads.0 * Own::of::<S>(channels, others, strip).len()
    };
    room(ci, Way::Forward.spots()).max(room(co, Way::Back.spots()))
}

/// A pass in which threads divide the output channels. `from` is its input: x, or dy for the input gradient.
pub struct Wide<'a, S> {
    pub set: S,
    pub threads: Threads,
    pub way: Way,
    pub from: Side<'a>,
    pub filters: Filters,
    /// Tiles per strip.
    pub strip: usize,
}

/// A strip with its inputs on the grid.
struct Strip<'a> {
    tiles: &'a Tiles,
    order: Order,
    v: &'a [f32],
}

impl<S: Vectors> Wide<'_, S> {
    /// Computes `to` (y from x, or dx from dy) with plain filters `w`.
    pub fn convolve(&self, to: &TensorDesc, w: &[f32], finish: Finish<'_>, work: &mut [f32], y: &mut [f32]) {
        let outputs = if self.way == Way::Forward { to } else { &self.from.desc };
        let parts = Divided::by_columns(y, to.sample_elems(), PAD * to.shape.plane());
        self.each_group(outputs, to, work, parts, |group, u, m, strips, y| {
            self.filters.transform_group::<S, LINES, LINE, WIDE>(self.set, group, w, u);
            for strip in strips {
                let (m, y) = (&mut *m, y.reborrow());
                self.set.run(Products { way: self.way, to, group, finish, strip, u, m, y });
            }
        });
    }

    /// Computes the filter gradient in plain order from x and `dy`.
    pub fn correlate(&self, dy: Side<'_>, work: &mut [f32], dw: &mut [f32]) {
        dw.fill(0.0);
        self.each_group(&dy.desc, &dy.desc, work, self.filters.by_columns(dw, PAD), |group, u, d, strips, dw| {
            u.fill(0.0);
            for strip in strips {
                self.set.run(Sums { dy, group, strip, d: &mut *d, du: &mut *u });
            }
            self.filters.add_group::<S, LINES, LINE, WIDE>(self.set, group, u, dw);
        });
    }

    /// Transforms the inputs of as many strips as fit into `work`. `outputs` defines the tiles. Then it calls `f(group
    /// of channels, filters, products, strips, the thread's part of `parts`)` for all groups of channels in `to`. It
    /// repeats this until all strips are done.
    fn each_group(
        &self,
        outputs: &TensorDesc,
        to: &TensorDesc,
        work: &mut [f32],
        mut parts: Divided<'_, f32>,
        f: impl Fn(usize, &mut [f32], &mut [f32], &mut dyn Iterator<Item = Strip<'_>>, &mut Matrix<'_, f32>) + Sync,
    ) {
        let (channels, all) = (padded(self.from.desc.shape.c), to.n * tiles(outputs, WIDE));
        let [spots, others] = self.way.spots();
        let order = Order::by_place::<S>(channels, self.strip, WIDE);
        let (len, strips) = (spots * order.place, all.min(TILES).div_ceil(self.strip));
        let (inputs, own) = work.split_at_mut(strips * len);
        let each = Own::of::<S>(channels, others, self.strip);
        let runs: Vec<Tiles> = Run::each(all, self.strip).map(|run| Tiles::new(outputs, run)).collect();
        for runs in runs.chunks(strips) {
            self.threads.divide(runs.len(), Items::new(inputs, len), |strips, inputs| {
                for (tiles, v) in runs[strips].iter().zip(inputs.chunks_exact_mut(len)) {
                    self.set.run(Inputs { way: self.way, from: self.from, tiles, order, v });
                }
            });
            let parts = (PerThread::new(own, each.len()), parts.reborrow());
            self.threads.divide(padded(to.shape.c) / PAD, parts, |groups, (own, mut part)| {
                let (u, m) = own.split_at_mut(each.filters);
                for group in groups {
                    let strips = runs.iter().zip(inputs.chunks_exact(len));
                    f(group, u, m, &mut strips.map(|(tiles, v)| Strip { tiles, order, v }), &mut part);
                }
            });
        }
    }
}

/// Transforms the inputs of a strip.
struct Inputs<'a> {
    way: Way,
    from: Side<'a>,
    tiles: &'a Tiles,
    order: Order,
    v: &'a mut [f32],
}

impl Job for Inputs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { way, from, tiles, order, v } = self;
        way.inputs(set, from, tiles, order, v);
    }
}

/// Computes a strip's products and outputs in a group of channels.
struct Products<'a> {
    way: Way,
    to: &'a TensorDesc,
    group: usize,
    finish: Finish<'a>,
    strip: Strip<'a>,
    u: &'a [f32],
    m: &'a mut [f32],
    y: Matrix<'a, f32>,
}

impl Job for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { way, to, group, finish, strip: Strip { tiles, order, v }, u, m, y } = self;
        let own = Order { place: m.len() / way.spots()[1], ..Order::by_place::<S>(PAD, 0, WIDE) };
        let channels = (u.len() / FILTERS / PAD, PAD);
        passes::multiply(set, way, tiles, (v, order), (u, channels), (m, own), &mut []);
        way.outputs(set, To { desc: to, blocks: blocks::<S>(to, group), order: own, finish }, tiles, m, y);
    }
}

/// Adds a strip's contribution to the filter gradient for a group of channels.
struct Sums<'a> {
    dy: Side<'a>,
    group: usize,
    strip: Strip<'a>,
    d: &'a mut [f32],
    du: &'a mut [f32],
}

impl Job for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { dy, group, strip: Strip { tiles, order, v }, d, du } = self;
        let blocks = blocks::<S>(&dy.desc, group);
        if blocks.len() * S::LANES < PAD {
            d.fill(0.0);
        }
        let own = Order { place: d.len() / CELLS, ..Order::by_place::<S>(PAD, 0, WIDE) };
        gradients(set, dy, (tiles, blocks), own, d);
        let channels = (du.len() / FILTERS / PAD, PAD);
        passes::accumulate(set, tiles, (v, order), (d, own), channels, du, &mut []);
    }
}

//! The three passes of a stride-2 convolution, strip by strip: outputs from inputs, the input gradient from the output
//! gradient, and the filter gradient from both.

use super::super::super::divide::{Items, Matrix, PerThread};
use super::super::super::threads::Threads;
use super::super::super::vector::{Job, Vectors};
use super::super::outputs::Finish;
use super::super::strip::{self, Order, PixelPrefetcher, Run, padded, tiles};
use super::super::transform::PassInput;
use super::grid::{CELLS, PLACES, TILE_COLUMNS, Tiles, phases};
use super::transform::{PassOutput, gradients};
use super::{Correlation, transform};
use crate::TensorDesc;

/// Returns how many floats a thread needs for a strip, in any pass.
pub fn workspace<S: Vectors>([ci, co]: [usize; 2], strip: usize) -> usize {
    let place = |channels| Order::by_place::<S>(channels, strip, TILE_COLUMNS).place;
    PLACES * place(ci) + CELLS * place(co)
}

/// A pass from x to y, or from dy to dx.
#[derive(Clone, Copy)]
pub struct Convolution<'a> {
    pub direction: Direction,
    pub from: PassInput<'a>,
    pub to: &'a TensorDesc,
    pub filters: &'a [f32],
    /// Number of tiles per strip.
    pub strip: usize,
    pub finish: Finish<'a>,
}

impl Convolution<'_> {
    /// Runs the pass. `workspace` is divided into equal parts, one per thread.
    pub fn run<S: Vectors>(&self, set: S, threads: Threads, workspace: &mut [f32], y: &mut [f32]) {
        let share = workspace.len() / threads.0;
        let sample = self.to.sample_elems();
        let parts = (PerThread::new(workspace, share), Items::new(y, sample));
        let outputs = if self.direction == Direction::Forward { self.to } else { &self.from.desc };
        threads.divide(self.to.n, parts, |samples, (workspace, y)| {
            let mut y = Matrix::new(y, sample);
            let here = Convolution { from: self.from.skip(samples.start), ..*self };
            for run in Run::each(samples.len() * tiles(outputs, TILE_COLUMNS), self.strip) {
                let tiles = Tiles::new(outputs, run);
                set.run(ConvolvedStrip { convolution: here, tiles, workspace: &mut *workspace, y: y.reborrow() });
            }
        });
    }
}

/// Computes inputs, products and outputs of a strip.
struct ConvolvedStrip<'a> {
    convolution: Convolution<'a>,
    tiles: Tiles,
    workspace: &'a mut [f32],
    y: Matrix<'a, f32>,
}

impl Job for ConvolvedStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { convolution: Convolution { direction, from, to, filters, strip, finish }, tiles, workspace, y } =
            self;
        let channels = (padded(from.desc.shape.c), padded(to.shape.c));
        let [v_order, m_order] = [channels.0, channels.1].map(|c| Order::by_place::<S>(c, strip, TILE_COLUMNS));
        let (v, m) = workspace.split_at_mut(direction.grid_sizes()[0] * v_order.place);
        direction.inputs(set, from, &tiles, v_order, v);
        let mut ahead = [tiles.ahead(&from.desc, from.data.as_ptr()), tiles.ahead(to, y.as_ptr())];
        multiply(set, direction, &tiles, (v, v_order), (filters, channels), (m, m_order), &mut ahead);
        direction.outputs(set, PassOutput { desc: to, blocks: 0..to.blocks(), order: m_order, finish }, &tiles, m, y);
    }
}

/// Sums the gradient of the transformed filters over all tiles. Each thread has its own sum.
pub fn correlate<S: Vectors>(
    of: Correlation<'_>,
    set: S,
    threads: Threads,
    workspace: &mut [f32],
    gradient: &mut [f32],
) {
    let (outputs, strip) = (of.dy.desc, of.strip);
    of.each_thread(threads, workspace, gradient, |x, dy, samples, workspace, gradient| {
        for run in Run::each(samples * tiles(&outputs, TILE_COLUMNS), strip) {
            let tiles = Tiles::new(&outputs, run);
            set.run(CorrelatedStrip { x, dy, tiles, strip, workspace, gradient });
        }
    });
}

/// Adds the contribution of a strip to the filter gradient.
struct CorrelatedStrip<'a> {
    x: PassInput<'a>,
    dy: PassInput<'a>,
    tiles: Tiles,
    strip: usize,
    workspace: &'a mut [f32],
    gradient: &'a mut [f32],
}

impl Job for CorrelatedStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { x, dy, tiles, strip, workspace, gradient } = self;
        let (ci, co) = (padded(x.desc.shape.c), padded(dy.desc.shape.c));
        let [v_order, d_order] = [ci, co].map(|c| Order::by_place::<S>(c, strip, TILE_COLUMNS));
        let (v, d) = workspace.split_at_mut(PLACES * v_order.place);
        Direction::Forward.inputs(set, x, &tiles, v_order, v);
        d_order.clear_rest(&dy.desc, co, CELLS, d);
        gradients(set, dy, (&tiles, 0..dy.desc.blocks()), d_order, d);
        let mut ahead = [tiles.ahead(&x.desc, x.data.as_ptr()), tiles.ahead(&dy.desc, dy.data.as_ptr())];
        accumulate(set, &tiles, (v, v_order), (d, d_order), (ci, co), gradient, &mut ahead);
    }
}

// The two directions between images, and the products of transformed values. Each place has a filter value and belongs
// to a cell, see `grid`. In the forward direction, a cell is the sum of the products of all its places. In the backward
// direction, each place is the product of its cell and its filter value.

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The forward pass, from x to y.
    Forward,
    /// The input gradient, from dy to dx.
    Backward,
}

impl Direction {
    /// Returns how many matrices (places or cells) are read, and how many are computed.
    pub fn grid_sizes(self) -> [usize; 2] {
        match self {
            Self::Forward => [PLACES, CELLS],
            Self::Backward => [CELLS, PLACES],
        }
    }

    /// Transforms the pass's input from images, with zeros in the padding channels.
    #[inline(always)]
    pub fn inputs<S: Vectors>(self, set: S, from: PassInput<'_>, tiles: &Tiles, order: Order, v: &mut [f32]) {
        let of = (tiles, 0..from.desc.blocks());
        order.clear_rest(&from.desc, padded(from.desc.shape.c), self.grid_sizes()[0], v);
        match self {
            Self::Forward => transform::inputs(set, from, of, order, v),
            Self::Backward => transform::cells(set, from, of, order, v),
        }
    }

    /// Transforms the products back to images.
    #[inline(always)]
    pub fn outputs<S: Vectors>(self, set: S, to: PassOutput<'_>, tiles: &Tiles, m: &[f32], y: Matrix<'_, f32>) {
        match self {
            Self::Forward => to.outputs(set, tiles, m, y),
            Self::Backward => to.pixels(set, tiles, m, y),
        }
    }
}

/// Computes all products of a run of tiles: `m` from the transformed inputs `v` and the transformed filters `u`.
/// Prefetches pixels meanwhile.
#[inline(always)]
pub fn multiply<S: Vectors>(
    set: S,
    direction: Direction,
    tiles: &Tiles,
    (v, v_order): (&[f32], Order),
    (u, (ci, co)): (&[f32], (usize, usize)),
    (m, m_order): (&mut [f32], Order),
    ahead: &mut [PixelPrefetcher],
) {
    for cell in 0..CELLS {
        for (i, (place, filter)) in phases(cell).enumerate() {
            let [from, to] = if direction == Direction::Forward { [place, cell] } else { [cell, place] };
            let u = &u[filter * ci * co..][..ci * co];
            let (v, m) = (&v[from * v_order.place..], &mut m[to * m_order.place..]);
            // Each phase is summed separately, and the sums are added, because shorter sums have smaller rounding
            // errors.
            strip::multiply(set, tiles.count[cell], v, u, (ci, co), m, direction == Direction::Forward && i > 0);
            ahead.iter_mut().for_each(|ahead| ahead.fetch(set));
        }
    }
}

/// Adds the contribution of some tiles to the gradient `du` of the transformed filters. `v` are the transformed inputs
/// and `d` the transformed output gradient.
#[inline(always)]
pub fn accumulate<S: Vectors>(
    set: S,
    tiles: &Tiles,
    (v, v_order): (&[f32], Order),
    (d, d_order): (&[f32], Order),
    (ci, co): (usize, usize),
    du: &mut [f32],
    ahead: &mut [PixelPrefetcher],
) {
    for cell in (0..CELLS).filter(|&cell| tiles.count[cell] > 0) {
        for (place, filter) in phases(cell) {
            let du = &mut du[filter * ci * co..][..ci * co];
            let (v, d) = (&v[place * v_order.place..], &d[cell * d_order.place..]);
            strip::accumulate(set, tiles.count[cell], v, d, (ci, co), du);
            ahead.iter_mut().for_each(|ahead| ahead.fetch(set));
        }
    }
}

//! The two ways between images, and the products on the grid: cells sum those of all their places, forward; back, each place is a product
//! of its cell.

use super::super::super::threads::Shared;
use super::super::super::vector::Vectors;
use super::super::ahead::Ahead;
use super::super::kernel::{self, padded};
use super::super::strip::Order;
use super::super::transform::Side;
use super::grid::{CELLS, PLACES, Tiles, phases};
use super::outputs::To;
use super::transform;

/// Which way a pass goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From x to y.
    Forward,
    /// From dy to dx.
    Back,
}

impl Way {
    /// Places or cells of what is read, and of what is computed.
    pub fn spots(self) -> [usize; 2] {
        match self {
            Self::Forward => [PLACES, CELLS],
            Self::Back => [CELLS, PLACES],
        }
    }

    /// Brings what is read to the grid, with zeros in the padded channels.
    #[inline(always)]
    pub fn inputs<S: Vectors>(self, set: S, from: Side<'_>, tiles: &Tiles, order: Order, v: &mut [f32]) {
        let of = (tiles, 0..from.desc.blocks());
        order.clear_rest(&from.desc, padded(from.desc.shape.c), self.spots()[0], v);
        match self {
            Self::Forward => transform::inputs(set, from, of, order, v),
            Self::Back => transform::cells(set, from, of, order, v),
        }
    }

    /// Brings what is computed from the grid to the images.
    #[inline(always)]
    pub fn outputs<S: Vectors>(self, set: S, to: To<'_>, tiles: &Tiles, m: &[f32], y: Shared<f32>) {
        match self {
            Self::Forward => to.outputs(set, tiles, m, y),
            Self::Back => to.pixels(set, tiles, m, y),
        }
    }
}

/// All products of a run of tiles: `m` of `v` and the filters `u`, between so many channels; meanwhile, pixels are fetched.
#[inline(always)]
pub fn multiply<S: Vectors>(
    set: S,
    way: Way,
    tiles: &Tiles,
    (v, v_order): (&[f32], Order),
    (u, (ci, co)): (&[f32], (usize, usize)),
    (m, m_order): (&mut [f32], Order),
    ahead: &mut [Ahead],
) {
    for cell in 0..CELLS {
        for (i, (place, filter)) in phases(cell).enumerate() {
            let [from, to] = if way == Way::Forward { [place, cell] } else { [cell, place] };
            let u = &u[filter * ci * co..][..ci * co];
            let (v, m) = (&v[from * v_order.place..], &mut m[to * m_order.place..]);
            // sums of each phase for itself are shorter, and so are their rounding errors
            kernel::multiply(set, tiles.count[cell], v, u, (ci, co), m, way == Way::Forward && i > 0);
            ahead.iter_mut().for_each(|ahead| ahead.fetch(set));
        }
    }
}

/// Adds to the gradient of the filters, `du`, what a run of tiles gives, of inputs `v` and gradients of outputs `d`.
#[inline(always)]
pub fn accumulate<S: Vectors>(
    set: S,
    tiles: &Tiles,
    (v, v_order): (&[f32], Order),
    (d, d_order): (&[f32], Order),
    (ci, co): (usize, usize),
    du: &mut [f32],
    ahead: &mut [Ahead],
) {
    for cell in (0..CELLS).filter(|&cell| tiles.count[cell] > 0) {
        for (place, filter) in phases(cell) {
            let du = &mut du[filter * ci * co..][..ci * co];
            let (v, d) = (&v[place * v_order.place..], &d[cell * d_order.place..]);
            kernel::accumulate(set, tiles.count[cell], v, d, (ci, co), du);
            ahead.iter_mut().for_each(|ahead| ahead.fetch(set));
        }
    }
}

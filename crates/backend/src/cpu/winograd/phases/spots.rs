//! Where the cells and places of a tile lie, and which of them it has.

use super::super::super::vector::Vectors;
use super::super::strip::Order;
use super::grid::{ACROSS, CELLS, DOWN, PLACES_ACROSS};

/// Where a tile's cells are: the first float of each, in the matrix of its place, and floats from place to place.
#[derive(Clone, Copy)]
pub struct Spots {
    rows: [usize; CELLS],
    place: usize,
    /// Where the last of so many places ends.
    pub end: usize,
}

impl Spots {
    /// Of the tile's rows, in channel block `block` of a strip, at so many places.
    #[inline(always)]
    pub fn new<S: Vectors>(order: Order, rows: [usize; CELLS], block: usize, places: usize) -> Self {
        let rows = rows.map(|row| row * order.tile + block * order.block);
        let last = rows.iter().fold(0, |last, row| last.max(*row));
        Self { rows, place: order.place, end: (places - 1) * order.place + last + S::LANES }
    }

    /// Of a cell, where these alone are kept.
    #[inline(always)]
    pub fn cell(&self, r: usize, c: usize) -> usize {
        (r * ACROSS + c) * self.place + self.rows[r * ACROSS + c]
    }

    /// Of row `r` and column `c` of places.
    #[inline(always)]
    pub fn place(&self, r: usize, c: usize) -> usize {
        let (row, column) = (if r < DOWN { r } else { r - DOWN }, if c < ACROSS { c } else { c - ACROSS });
        (r * PLACES_ACROSS + c) * self.place + self.rows[row * ACROSS + column]
    }
}

/// Whether a tile with so many outputs along an axis has a product at place `at` of that axis: first come the odd phase's `most` finite
/// points, then infinity, then the even phase's finite points.
#[inline(always)]
pub const fn has(at: usize, most: usize, outputs: usize) -> bool {
    at == most || (if at < most { at } else { at - most - 1 }) < outputs
}

/// Calls a function for a tile's size.
macro_rules! by_size {
    ($size:expr, $f:ident::<$s:ident $(, $inside:literal)?>($($arg:expr),*)) => {
        match $size {
            [1, 1] => $f::<$s, 1, 1 $(, $inside)?>($($arg),*),
            [1, 2] => $f::<$s, 1, 2 $(, $inside)?>($($arg),*),
            [1, 3] => $f::<$s, 1, 3 $(, $inside)?>($($arg),*),
            [1, _] => $f::<$s, 1, 4 $(, $inside)?>($($arg),*),
            [_, 1] => $f::<$s, 2, 1 $(, $inside)?>($($arg),*),
            [_, 2] => $f::<$s, 2, 2 $(, $inside)?>($($arg),*),
            [_, 3] => $f::<$s, 2, 3 $(, $inside)?>($($arg),*),
            _ => $f::<$s, 2, 4 $(, $inside)?>($($arg),*),
        }
    };
}
pub(super) use by_size;

//! Transforms of the phases from the grid to images, for tiles of H x W outputs: A^T m A to outputs and to the gradient of inputs.

use std::ops::Range;

use super::super::super::threads::Shared;
use super::super::super::vector::Vectors;
use super::super::outputs::{Affine, Finish, write_tile};
use super::super::strip::Order;
use super::grid::{ACROSS, CELLS, DOWN, HIGH, PLACES, PLACES_ACROSS, Tiles, WIDE};
use super::lines::{COLUMNS, ROWS};
use super::spots::{Spots, by_size, has};
use crate::TensorDesc;

/// A^T m A of a tile's cells.
#[inline(always)]
fn outputs_of<S: Vectors, const H: usize, const W: usize>(
    set: S,
    spots: &Spots,
    m: &[f32],
) -> [[S::Lanes; WIDE]; HIGH] {
    let (zero, m) = (set.zero(), &m[..spots.end]);
    let mut columns = [[zero; HIGH]; ACROSS];
    for (c, column) in columns.iter_mut().enumerate() {
        if has(c, WIDE, W) {
            let mut cells = [zero; DOWN];
            for (r, lanes) in cells.iter_mut().enumerate() {
                if has(r, HIGH, H) {
                    // SAFETY: no cell ends behind `Spots::end`.
                    *lanes = unsafe { set.load(m.as_ptr().add(spots.cell(r, c))) };
                }
            }
            let y = ROWS.output(set, H, [cells[0], cells[1], zero, zero], cells[HIGH]);
            *column = [y[0], y[1]];
        }
    }
    let mut y = [[zero; WIDE]; HIGH];
    for (r, row) in y.iter_mut().enumerate() {
        let finite = [columns[0][r], columns[1][r], columns[2][r], columns[3][r]];
        *row = COLUMNS.output(set, W, finite, columns[WIDE][r]);
    }
    y
}

/// A^T m A of all phases of a tile: pixels of the gradient of the input.
#[inline(always)]
fn pixels_of<S: Vectors, const H: usize, const W: usize>(
    set: S,
    spots: &Spots,
    m: &[f32],
) -> [[S::Lanes; 2 * WIDE]; 2 * HIGH] {
    let (zero, m) = (set.zero(), &m[..spots.end]);
    let mut columns = [[zero; 2 * HIGH]; PLACES_ACROSS];
    for (c, column) in columns.iter_mut().enumerate() {
        if has(c, WIDE, W) {
            let mut cells = [zero; DOWN + HIGH];
            for (r, lanes) in cells.iter_mut().enumerate() {
                if has(r, HIGH, H) {
                    // SAFETY: no place ends behind `Spots::end`.
                    *lanes = unsafe { set.load(m.as_ptr().add(spots.place(r, c))) };
                }
            }
            let odd = ROWS.output(set, H, [cells[0], cells[1], zero, zero], cells[HIGH]);
            let even = ROWS.output(set, H, [cells[DOWN], cells[DOWN + 1], zero, zero], zero);
            *column = [even[0], odd[0], even[1], odd[1]];
        }
    }
    let mut y = [[zero; 2 * WIDE]; 2 * HIGH];
    for (r, row) in y.iter_mut().enumerate() {
        let odd = [columns[0][r], columns[1][r], columns[2][r], columns[3][r]];
        let even = [columns[5][r], columns[6][r], columns[7][r], columns[8][r]];
        let odd = COLUMNS.output(set, W, odd, columns[WIDE][r]);
        let even = COLUMNS.output(set, W, even, zero);
        *row = [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]];
    }
    y
}

/// What a pass computes, in a tensor of such sizes, in some channel blocks: how the products lie, and what follows.
pub struct To<'a> {
    pub desc: &'a TensorDesc,
    pub blocks: Range<usize>,
    pub order: Order,
    pub finish: Finish<'a>,
}

/// What a pass computes, from the products of a run of tiles at so many places, by `$f`, each tile's from `$scale` times its first row and
/// column on.
macro_rules! finished {
    ($(#[$doc:meta])* $name:ident, $f:ident, $places:expr, $scale:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<S: Vectors>(&self, set: S, tiles: &Tiles, m: &[f32], y: Shared<f32>) {
            let Self { desc, blocks, order, finish } = self;
            let (len, sample) = (desc.shape.plane() * S::LANES, desc.sample_elems());
            for row in tiles.rows() {
                for (i, block) in blocks.clone().enumerate() {
                    let mut affine = Affine::new(set, finish, block * S::LANES);
                    for (tile, cells) in row.clone() {
                        let first = tile.n * sample + block * len;
                        // SAFETY: the caller writes these blocks of these samples alone, and has borrowed `y`.
                        let plane = unsafe { y.part(first..first + len) };
                        let spots = Spots::new::<S>(*order, cells, i, $places);
                        let at = ([desc.shape.h, desc.shape.w], $scale * tile.top, $scale * tile.left);
                        let y = by_size!(tile.size, $f::<S>(set, &spots, m));
                        write_tile(set, y, at, &mut affine, plane);
                    }
                }
            }
        }
    };
}

impl To<'_> {
    finished!(
        /// Outputs, from cells.
        outputs, outputs_of, CELLS, 1
    );
    finished!(
        /// The gradient of the input, from places.
        pixels, pixels_of, PLACES, 2
    );
}

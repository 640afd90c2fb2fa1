//! Transforms between images and transformed tiles of a stride-2 convolution, for tiles of H x W outputs. B^T d B
//! transforms the inputs, and also the output gradient if the input gradient is computed from it. A y A^T transforms
//! the output gradient for the filter gradient. A^T m A returns outputs and the input gradient.

use std::ops::Range;

use super::super::super::divide::Matrix;
use super::super::super::vector::{Vectors, load};
use super::super::outputs::{BiasEpilogue, Finish, write_tile};
use super::super::strip::Order;
use super::PassInput;
use super::grid::{
    CELL_COLUMNS, CELL_ROWS, CELLS, COLUMNS, FINITE, Grid, GridMut, PLACE_COLUMNS, PLACES, ROWS, TILE_COLUMNS,
    TILE_ROWS, TileOffsets, Tiles, by_size, has_place,
};
use crate::TensorDesc;

/// Pixels of a plane that begin at row and column `at`. Pixels outside the plane are zero.
#[derive(Clone, Copy)]
struct Patch<'a> {
    plane: &'a [f32],
    size: [usize; 2],
    /// Number of rows and columns by which a patch may start before the plane. `at` is counted from that position, so
    /// it is never negative.
    before: usize,
    at: [usize; 2],
}

impl Patch<'_> {
    /// Returns true if the first `extent[0]` rows and `extent[1]` columns of the patch are inside the plane.
    #[inline(always)]
    fn is_inside<S: Vectors>(&self, extent: [usize; 2]) -> bool {
        let inside =
            |axis: usize| self.at[axis] >= self.before && self.at[axis] + extent[axis] <= self.size[axis] + self.before;
        inside(0) && inside(1) && self.plane.len() == self.size[0] * self.size[1] * S::LANES
    }

    /// Returns a pixel. With `INSIDE`, it must be in an extent for which [`Self::is_inside`] has returned true.
    #[inline(always)]
    fn pixel<S: Vectors, const INSIDE: bool>(&self, set: S, r: usize, c: usize) -> S::Lanes {
        let (r, c) = ((self.at[0] + r).wrapping_sub(self.before), (self.at[1] + c).wrapping_sub(self.before));
        let at = r.wrapping_mul(self.size[1]).wrapping_add(c).wrapping_mul(S::LANES);
        if INSIDE {
            // SAFETY: the caller ensures that row and column are inside the plane.
            unsafe { set.load(self.plane.as_ptr().add(at)) }
        } else if r < self.size[0] && c < self.size[1] {
            load(set, self.plane, at)
        } else {
            set.zero()
        }
    }
}

/// Computes B^T d B of a tile's pixels, separately for odd and even rows and columns. The patch starts with an odd row
/// and column.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // Using rows as a transposed array takes a tenth longer.
fn place_inputs<S: Vectors, const H: usize, const W: usize, const INSIDE: bool>(
    set: S,
    patch: Patch<'_>,
    mut v: GridMut<'_, S>,
) {
    let zero = set.zero();
    let mut columns = [[zero; CELL_ROWS + TILE_ROWS]; 2 * TILE_COLUMNS + 1];
    for (c, column) in columns.iter_mut().enumerate().take(2 * W + 1) {
        let mut d = [zero; 2 * TILE_ROWS + 1];
        for (r, lanes) in d.iter_mut().enumerate().take(2 * H + 1) {
            *lanes = patch.pixel::<S, INSIDE>(set, r, c);
        }
        let odd = ROWS.finite(set, H, [d[0], d[2], zero, zero]);
        let even = ROWS.finite(set, H, [d[1], d[3], zero, zero]);
        let infinite = ROWS.infinite(set, H, [d[0], d[2], d[4], zero, zero]);
        *column = [odd[0], odd[1], infinite, even[0], even[1]];
    }
    for r in 0..CELL_ROWS + TILE_ROWS {
        if !has_place(r, TILE_ROWS, H) {
            continue;
        }
        let odd = [columns[0][r], columns[2][r], columns[4][r], columns[6][r], columns[8][r]];
        let finite = COLUMNS.finite(set, W, [odd[0], odd[1], odd[2], odd[3]]);
        let even = COLUMNS.finite(set, W, [columns[1][r], columns[3][r], columns[5][r], columns[7][r]]);
        for c in 0..W {
            v.put::<true>((r, c), finite[c]);
            v.put::<true>((r, CELL_COLUMNS + c), even[c]);
        }
        v.put::<true>((r, TILE_COLUMNS), COLUMNS.infinite(set, W, odd));
    }
}

/// Computes B^T d B from the gradient of a tile's outputs and of their neighbours below and to the right.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // Using rows as a transposed array takes a tenth longer.
fn place_cells<S: Vectors, const H: usize, const W: usize, const INSIDE: bool>(
    set: S,
    patch: Patch<'_>,
    mut v: GridMut<'_, S>,
) {
    let zero = set.zero();
    let mut columns = [[zero; CELL_ROWS]; CELL_COLUMNS];
    for (c, column) in columns.iter_mut().enumerate().take(W + 1) {
        let mut d = [zero; FINITE + 1];
        for (r, lanes) in d.iter_mut().enumerate().take(H + 1) {
            *lanes = patch.pixel::<S, INSIDE>(set, r, c);
        }
        let finite = ROWS.finite(set, H, [d[0], d[1], zero, zero]);
        *column = [finite[0], finite[1], ROWS.infinite(set, H, d)];
    }
    for r in 0..CELL_ROWS {
        if !has_place(r, TILE_ROWS, H) {
            continue;
        }
        let line = [columns[0][r], columns[1][r], columns[2][r], columns[3][r], columns[4][r]];
        let finite = COLUMNS.finite(set, W, [line[0], line[1], line[2], line[3]]);
        for c in 0..W {
            v.put::<false>((r, c), finite[c]);
        }
        v.put::<false>((r, TILE_COLUMNS), COLUMNS.infinite(set, W, line));
    }
}

/// Computes A y A^T from the gradient of a tile's outputs.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // Using rows as a transposed array takes a tenth longer.
fn place_gradients<S: Vectors, const H: usize, const W: usize, const INSIDE: bool>(
    set: S,
    patch: Patch<'_>,
    mut v: GridMut<'_, S>,
) {
    let zero = set.zero();
    let mut columns = [[zero; CELL_ROWS]; TILE_COLUMNS];
    for (c, column) in columns.iter_mut().enumerate().take(W) {
        let mut y = [zero; FINITE];
        for (r, lanes) in y.iter_mut().enumerate().take(H) {
            *lanes = patch.pixel::<S, INSIDE>(set, r, c);
        }
        let finite = ROWS.gradient(set, H, y);
        *column = [finite[0], finite[1], y[H - 1]];
    }
    for r in 0..CELL_ROWS {
        if !has_place(r, TILE_ROWS, H) {
            continue;
        }
        let line = [columns[0][r], columns[1][r], columns[2][r], columns[3][r]];
        let finite = COLUMNS.gradient(set, W, line);
        for c in 0..W {
            v.put::<false>((r, c), finite[c]);
        }
        v.put::<false>((r, TILE_COLUMNS), line[W - 1]);
    }
}

/// Defines a transform for a run of tiles in some channel blocks of `side`. `$f` transforms a tile to `$places` places.
/// A tile's pixels start at `$scale` times its first row and column, minus `$before`. `$extent` is the number of pixels
/// that a whole tile reads.
macro_rules! transform {
    ($(#[$doc:meta])* $name:ident, $f:ident, $places:expr, $scale:literal, $before:literal, $extent:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<S: Vectors>(
            set: S,
            side: PassInput<'_>,
            (tiles, blocks): (&Tiles, Range<usize>),
            order: Order,
            v: &mut [f32],
        ) {
            let (len, all) = (side.desc.shape.plane() * S::LANES, side.desc.blocks());
            let size = [side.desc.shape.h, side.desc.shape.w];
            for row in tiles.rows() {
                for (i, block) in blocks.clone().enumerate() {
                    for (tile, cells) in row.clone() {
                        let plane = &side.data[(tile.n * all + block) * len..][..len];
                        let patch = Patch { plane, size, before: $before, at: [$scale * tile.top, $scale * tile.left] };
                        let offsets = TileOffsets::new::<S>(order, cells, i, $places);
                        let to = GridMut::new(set, &offsets, v);
                        if patch.is_inside::<S>($extent) {
                            $f::<S, TILE_ROWS, TILE_COLUMNS, true>(set, patch, to);
                        } else {
                            by_size!(tile.size, $f::<S, false>(set, patch, to));
                        }
                    }
                }
            }
        }
    };
}

transform!(
    /// Transforms the inputs to values at all places.
    inputs, place_inputs, PLACES, 2, 1, [2 * TILE_ROWS + 1, 2 * TILE_COLUMNS + 1]
);
transform!(
    /// Transforms the output gradient to values in all cells, for the input gradient.
    cells, place_cells, CELLS, 1, 0, [TILE_ROWS + 1, TILE_COLUMNS + 1]
);
transform!(
    /// Transforms the output gradient to values in all cells, for the filter gradient.
    gradients, place_gradients, CELLS, 1, 0, [TILE_ROWS, TILE_COLUMNS]
);

// Transforms from cells and places to images.

/// Returns A^T m A of a tile's cells.
#[inline(always)]
fn outputs_of<S: Vectors, const H: usize, const W: usize>(
    set: S,
    offsets: &TileOffsets,
    m: &[f32],
) -> [[S::Lanes; TILE_COLUMNS]; TILE_ROWS] {
    let (zero, m) = (set.zero(), Grid::new(set, offsets, m));
    let mut columns = [[zero; TILE_ROWS]; CELL_COLUMNS];
    for (c, column) in columns.iter_mut().enumerate() {
        if has_place(c, TILE_COLUMNS, W) {
            let mut cells = [zero; CELL_ROWS];
            for (r, lanes) in cells.iter_mut().enumerate() {
                if has_place(r, TILE_ROWS, H) {
                    *lanes = m.get::<false>(r, c);
                }
            }
            let y = ROWS.output(set, H, [cells[0], cells[1], zero, zero], cells[TILE_ROWS]);
            *column = [y[0], y[1]];
        }
    }
    let mut y = [[zero; TILE_COLUMNS]; TILE_ROWS];
    for (r, row) in y.iter_mut().enumerate() {
        let finite = [columns[0][r], columns[1][r], columns[2][r], columns[3][r]];
        *row = COLUMNS.output(set, W, finite, columns[TILE_COLUMNS][r]);
    }
    y
}

/// Returns A^T m A of a tile for odd and even rows and columns: pixels of the input gradient.
#[inline(always)]
fn pixels_of<S: Vectors, const H: usize, const W: usize>(
    set: S,
    offsets: &TileOffsets,
    m: &[f32],
) -> [[S::Lanes; 2 * TILE_COLUMNS]; 2 * TILE_ROWS] {
    let (zero, m) = (set.zero(), Grid::new(set, offsets, m));
    let mut columns = [[zero; 2 * TILE_ROWS]; PLACE_COLUMNS];
    for (c, column) in columns.iter_mut().enumerate() {
        if has_place(c, TILE_COLUMNS, W) {
            let mut cells = [zero; CELL_ROWS + TILE_ROWS];
            for (r, lanes) in cells.iter_mut().enumerate() {
                if has_place(r, TILE_ROWS, H) {
                    *lanes = m.get::<true>(r, c);
                }
            }
            let odd = ROWS.output(set, H, [cells[0], cells[1], zero, zero], cells[TILE_ROWS]);
            let even = ROWS.output(set, H, [cells[CELL_ROWS], cells[CELL_ROWS + 1], zero, zero], zero);
            *column = [even[0], odd[0], even[1], odd[1]];
        }
    }
    let mut y = [[zero; 2 * TILE_COLUMNS]; 2 * TILE_ROWS];
    for (r, row) in y.iter_mut().enumerate() {
        let odd = [columns[0][r], columns[1][r], columns[2][r], columns[3][r]];
        let even = [columns[5][r], columns[6][r], columns[7][r], columns[8][r]];
        let odd = COLUMNS.output(set, W, odd, columns[TILE_COLUMNS][r]);
        let even = COLUMNS.output(set, W, even, zero);
        *row = [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]];
    }
    y
}

/// The result of a pass: its tensor layout, the channel blocks to compute, the layout of the products, and how outputs
/// are processed.
pub struct PassOutput<'a> {
    pub desc: &'a TensorDesc,
    pub blocks: Range<usize>,
    pub order: Order,
    pub finish: Finish<'a>,
}

/// Defines a computation that transforms products at `$places` places to a pass's result. `$f` transforms a tile, and
/// the tile's pixels start at `$scale` times its first row and column.
macro_rules! finished {
    ($(#[$doc:meta])* $name:ident, $f:ident, $places:expr, $scale:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<S: Vectors>(&self, set: S, tiles: &Tiles, m: &[f32], mut y: Matrix<'_, f32>) {
            let Self { desc, blocks, order, finish } = self;
            let len = desc.shape.plane() * S::LANES;
            for row in tiles.rows() {
                for (i, block) in blocks.clone().enumerate() {
                    let mut with_bias = BiasEpilogue::new(set, finish, block * S::LANES);
                    for (tile, cells) in row.clone() {
                        let plane = y.row(tile.n, block * len..(block + 1) * len);
                        let offsets = TileOffsets::new::<S>(*order, cells, i, $places);
                        let at = ([desc.shape.h, desc.shape.w], $scale * tile.top, $scale * tile.left);
                        let pixels = by_size!(tile.size, $f::<S>(set, &offsets, m));
                        write_tile(set, pixels, at, &mut with_bias, plane);
                    }
                }
            }
        }
    };
}

impl PassOutput<'_> {
    finished!(
        /// Computes the outputs from the cells.
        outputs, outputs_of, CELLS, 1
    );
    finished!(
        /// Computes the input gradient from the places.
        pixels, pixels_of, PLACES, 2
    );
}

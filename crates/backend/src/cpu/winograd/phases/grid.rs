//! The values of a transformed tile with up to 2 x 4 outputs. Odd and even pixels (the phases) are transformed
//! separately. A place is the position of a value that belongs to one row phase and one column phase. A cell is the sum
//! of the products at up to four places, one for each pair of phases. Tiles at the lower and right edge have fewer rows
//! or columns and fewer cells.

use super::super::super::vector::Vectors;
use super::super::strip::{Order, PixelPrefetcher, Run, tiles};
use crate::TensorDesc;

/// Rows and columns of outputs in a whole tile. The transform has a finite interpolation point for each row or column.
pub const TILE_ROWS: usize = 2;
pub const TILE_COLUMNS: usize = FINITE;

/// Rows and columns of cells: one for each finite interpolation point, then one for infinity.
pub const CELL_ROWS: usize = TILE_ROWS + 1;
pub const CELL_COLUMNS: usize = TILE_COLUMNS + 1;
pub const CELLS: usize = CELL_ROWS * CELL_COLUMNS;

/// Columns of places: first the odd phase's points, then the even phase's points, which do not include infinity. Rows
/// have the same order.
pub const PLACE_COLUMNS: usize = CELL_COLUMNS + TILE_COLUMNS;
pub const PLACES: usize = (CELL_ROWS + TILE_ROWS) * PLACE_COLUMNS;

/// Size of a transformed filter: lines, and values per line. The odd phase has a value for each point. The even phase
/// has a single value, which all points use.
pub const LINES: usize = CELL_ROWS + 1;
pub const LINE: usize = CELL_COLUMNS + 1;
pub const FILTERS: usize = LINES * LINE;

/// Returns the places whose products are added in a cell, each with the index of its filter value.
pub fn phases(cell: usize) -> impl Iterator<Item = (usize, usize)> {
    let [r, c] = [cell / CELL_COLUMNS, cell % CELL_COLUMNS];
    let rows = [(r, r), (CELL_ROWS + r, CELL_ROWS)].into_iter().take(if r < TILE_ROWS { 2 } else { 1 });
    rows.flat_map(move |(row, line)| {
        let columns = [(c, c), (CELL_COLUMNS + c, CELL_COLUMNS)].into_iter().take(if c < TILE_COLUMNS { 2 } else { 1 });
        columns.map(move |(column, filter)| (row * PLACE_COLUMNS + column, line * LINE + filter))
    })
}

/// Returns true if a tile of this size has the cell. Smaller tiles lack the cells of some points.
fn has([rows, columns]: [usize; 2], cell: usize) -> bool {
    let [r, c] = [cell / CELL_COLUMNS, cell % CELL_COLUMNS];
    (r == TILE_ROWS || r < rows) && (c == TILE_COLUMNS || c < columns)
}

/// A tile: its sample, its first output row and column, and its numbers of rows and columns.
#[derive(Clone, Copy)]
pub struct Tile {
    pub n: usize,
    pub top: usize,
    pub left: usize,
    pub size: [usize; 2],
}

impl Tile {
    fn of(d: &TensorDesc, number: usize) -> Self {
        let (h, w) = (d.shape.h, d.shape.w);
        let (all, across) = (tiles(d, TILE_COLUMNS), w.div_ceil(TILE_COLUMNS));
        let (n, i) = (number / all, number % all);
        let (top, left) = (i / across * TILE_ROWS, i % across * TILE_COLUMNS);
        Self { n, top, left, size: [TILE_ROWS.min(h - top), TILE_COLUMNS.min(w - left)] }
    }

    fn next(self, d: &TensorDesc) -> Self {
        let (h, w) = (d.shape.h, d.shape.w);
        let Self { mut n, mut top, mut left, .. } = self;
        left += TILE_COLUMNS;
        if left >= w {
            (top, left) = (top + TILE_ROWS, 0);
        }
        if top >= h {
            (n, top) = (n + 1, 0);
        }
        Self { n, top, left, size: [TILE_ROWS.min(h - top), TILE_COLUMNS.min(w - left)] }
    }

    /// Returns 0 for whole tiles, 1 at the right edge, 2 at the lower edge, and 3 in the corner.
    fn kind(&self) -> usize {
        2 * usize::from(self.size[0] < TILE_ROWS) + usize::from(self.size[1] < TILE_COLUMNS)
    }
}

/// The tiles of a run, and which cells each of them has. The matrix of a cell has a row for each tile that has the
/// cell, ordered by kind.
pub struct Tiles {
    /// Layout of the outputs, which defines the tiles.
    of: TensorDesc,
    run: Run,
    /// For each kind, and for each cell, the row of the kind's first tile in the cell's matrix.
    first: [[usize; CELLS]; 4],
    pub count: [usize; CELLS],
}

impl Tiles {
    pub fn new(of: &TensorDesc, run: Run) -> Self {
        let mut kinds = [(0, [0; 2]); 4];
        let mut tile = Tile::of(of, run.first);
        for _ in 0..run.count {
            let (count, size) = &mut kinds[tile.kind()];
            *count += 1;
            *size = tile.size;
            tile = tile.next(of);
        }
        let (mut first, mut count) = ([[0; CELLS]; 4], [0; CELLS]);
        for (first, (tiles, size)) in first.iter_mut().zip(kinds) {
            *first = count;
            (0..CELLS).filter(|&cell| has(size, cell)).for_each(|cell| count[cell] += tiles);
        }
        Self { of: *of, run, first, count }
    }

    /// Creates a prefetcher for the pixels of the next run in a tensor. Each product calls its `fetch` once.
    pub fn ahead(&self, desc: &TensorDesc, data: *const f32) -> PixelPrefetcher {
        PixelPrefetcher::new(desc, data, (self.run, tiles(&self.of, TILE_COLUMNS)), 0, PLACES)
    }

    /// Returns the rows of tiles in the run. A row yields neighbouring tiles, each with its row number in the matrix of
    /// every cell. The number is meaningless for cells that the tile does not have.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let first = Tile::of(&self.of, self.run.first);
        let mut rest = Row { of: &self.of, tile: first, left: self.run.count, next: self.first };
        std::iter::from_fn(move || {
            let mut row = rest.clone();
            row.left = rest.left.min((self.of.shape.w - rest.tile.left).div_ceil(TILE_COLUMNS));
            // Advance to the start of the next row.
            (row.left > 0).then(|| {
                rest.nth(row.left - 1);
                row
            })
        })
    }
}

/// Neighbouring tiles in a row, see [`Tiles::rows`].
#[derive(Clone)]
pub struct Row<'a> {
    of: &'a TensorDesc,
    tile: Tile,
    left: usize,
    next: [[usize; CELLS]; 4],
}

impl Iterator for Row<'_> {
    type Item = (Tile, [usize; CELLS]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let cells = &mut self.next[self.tile.kind()];
        let here = (self.tile, *cells);
        cells.iter_mut().for_each(|row| *row += 1);
        self.tile = self.tile.next(self.of);
        Some(here)
    }
}

/// Offsets of a tile's values in a strip. Each place or cell has a matrix with a row per tile.
#[derive(Clone, Copy)]
pub struct TileOffsets {
    rows: [usize; CELLS],
    place: usize,
    places: usize,
    /// The largest offset of any value.
    last: usize,
}

impl TileOffsets {
    /// Returns the offsets of a tile. `rows` are the tile's rows in the matrices, `block` is its channel block in a
    /// strip, and `places` the number of places.
    #[inline(always)]
    pub fn new<S: Vectors>(order: Order, rows: [usize; CELLS], block: usize, places: usize) -> Self {
        let rows = rows.map(|row| row * order.tile + block * order.block);
        let last = rows.iter().fold(0, |last, row| last.max(*row));
        Self { rows, place: order.place, places, last: (places - 1).saturating_mul(order.place).saturating_add(last) }
    }

    /// Returns the offset of row `r` and column `c`, which count places if `PLACES` is true, otherwise cells. The
    /// offset is at most `last`.
    #[inline(always)]
    fn first<const PLACES: bool>(&self, r: usize, c: usize) -> usize {
        let (place, cell) = if PLACES {
            let (row, column) =
                (if r < CELL_ROWS { r } else { r - CELL_ROWS }, if c < CELL_COLUMNS { c } else { c - CELL_COLUMNS });
            (r * PLACE_COLUMNS + c, row * CELL_COLUMNS + column)
        } else {
            (r * CELL_COLUMNS + c, r * CELL_COLUMNS + c)
        };
        assert!(place < self.places);
        place * self.place + self.rows[cell]
    }
}

/// The transformed values of a tile in a strip, read a register at a time.
pub struct Grid<'a, S> {
    set: S,
    offsets: &'a TileOffsets,
    floats: &'a [f32],
}

/// A [`Grid`] whose registers can be written.
pub struct GridMut<'a, S> {
    set: S,
    offsets: &'a TileOffsets,
    floats: &'a mut [f32],
}

impl<'a, S: Vectors> Grid<'a, S> {
    #[inline(always)]
    pub fn new(set: S, offsets: &'a TileOffsets, floats: &'a [f32]) -> Self {
        Self { set, offsets, floats: &floats[..offsets.last + S::LANES] }
    }

    /// Returns the register at row `r` and column `c`, see [`TileOffsets::first`].
    #[inline(always)]
    pub fn get<const PLACES: bool>(&self, r: usize, c: usize) -> S::Lanes {
        // SAFETY: offsets are at most `TileOffsets::last`, and the slice has a register from there on.
        unsafe { self.set.load(self.floats.as_ptr().add(self.offsets.first::<PLACES>(r, c))) }
    }
}

impl<'a, S: Vectors> GridMut<'a, S> {
    #[inline(always)]
    pub fn new(set: S, offsets: &'a TileOffsets, floats: &'a mut [f32]) -> Self {
        Self { set, offsets, floats: &mut floats[..offsets.last + S::LANES] }
    }

    /// Stores the register at row `r` and column `c`, see [`TileOffsets::first`].
    #[inline(always)]
    pub fn put<const PLACES: bool>(&mut self, (r, c): (usize, usize), lanes: S::Lanes) {
        // SAFETY: offsets are at most `TileOffsets::last`, and the slice has a register from there on.
        unsafe { self.set.store(lanes, self.floats.as_mut_ptr().add(self.offsets.first::<PLACES>(r, c))) }
    }
}

/// Returns true if a tile with `outputs` outputs along an axis has a product at place `at` on the axis. First come the
/// odd phase's `most` finite points, then infinity, then the even phase's finite points.
#[inline(always)]
pub const fn has_place(at: usize, most: usize, outputs: usize) -> bool {
    at == most || (if at < most { at } else { at - most - 1 }) < outputs
}

/// Calls a function that has the tile's size as constant parameters.
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

// The matrices of F(s, 2) for an axis with s = 1 to 4 outputs. There are s finite points and infinity. Tiles with fewer
// outputs use the first of the same points, so tiles of all sizes share the transformed filters. The even phase has a
// single tap and needs only the finite points.

/// The interpolation points of an axis: near, -near, far, -far, infinity.
#[derive(Clone, Copy)]
pub struct Points {
    near: f32,
    far: f32,
}

/// Points for rows and for columns with the least rounding error that was measured. A tile has two rows, so the far
/// points for rows are not used.
pub const ROWS: Points = Points { near: 0.75, far: 1.5 };
pub const COLUMNS: Points = Points { near: 0.5, far: 1.5 };

/// Maximum number of finite points along an axis.
pub const FINITE: usize = 4;

impl Points {
    /// Returns B^T d at the finite points, for s values.
    #[inline(always)]
    pub fn finite<S: Vectors>(self, set: S, s: usize, d: [S::Lanes; FINITE]) -> [S::Lanes; FINITE] {
        let (a, b) = (self.near, self.far);
        let zero = set.zero();
        match s {
            1 => [d[0], zero, zero, zero],
            2 => {
                let (even, odd) = (set.scale(0.5, d[0]), set.scale(0.5 / a, d[1]));
                [set.add(even, odd), set.sub(even, odd), zero, zero]
            }
            3 => {
                let mut t = [zero; FINITE];
                for (t, a) in t.iter_mut().zip([a, -a]) {
                    let scale = 0.5 / (a * (a - b));
                    let first = set.mul_add(set.splat(-a * b * scale), d[0], set.scale(scale, d[2]));
                    *t = set.mul_add(set.splat(0.5 / a), d[1], first);
                }
                t[2] = set.scale(1.0 / (b * b - a * a), set.sub_mul(d[2], set.splat(a * a), d[0]));
                t
            }
            _ => {
                let mut t = [zero; FINITE];
                for (at, p, q) in [(0, a, b), (2, b, a)] {
                    let (q2, scale) = (set.splat(q * q), 0.5 / (p * p - q * q));
                    let even = set.scale(scale, set.sub_mul(d[2], q2, d[0]));
                    let odd = set.scale(scale / p, set.sub_mul(d[3], q2, d[1]));
                    t[at] = set.add(even, odd);
                    t[at + 1] = set.sub(even, odd);
                }
                t
            }
        }
    }

    /// Returns B^T d at infinity, for s + 1 values.
    #[inline(always)]
    pub fn infinite<S: Vectors>(self, set: S, s: usize, d: [S::Lanes; FINITE + 1]) -> S::Lanes {
        let (a, b) = (self.near, self.far);
        let (a2, b2) = (a * a, b * b);
        match s {
            1 => set.sub_mul(d[1], set.splat(a), d[0]),
            2 => set.sub_mul(d[2], set.splat(a2), d[0]),
            3 => {
                let high = set.sub_mul(d[3], set.splat(b), d[2]);
                set.sub_mul(high, set.splat(a2), set.sub_mul(d[1], set.splat(b), d[0]))
            }
            _ => set.mul_add(set.splat(a2 * b2), d[0], set.sub_mul(d[4], set.splat(a2 + b2), d[2])),
        }
    }

    /// Returns A^T m, which has s outputs.
    #[inline(always)]
    pub fn output<S: Vectors>(self, set: S, s: usize, m: [S::Lanes; FINITE], infinite: S::Lanes) -> [S::Lanes; FINITE] {
        let (a, b) = (self.near, self.far);
        let (near, far) = (a * a, b * b);
        let (sum, difference) = (set.add(m[0], m[1]), set.sub(m[0], m[1]));
        let zero = set.zero();
        match s {
            1 => [set.add(m[0], infinite), zero, zero, zero],
            2 => [sum, set.mul_add(set.splat(a), difference, infinite), zero, zero],
            3 => {
                let third = set.mul_add(set.splat(far), m[2], infinite);
                [
                    set.add(sum, m[2]),
                    set.mul_add(set.splat(a), difference, set.scale(b, m[2])),
                    set.mul_add(set.splat(near), sum, third),
                    zero,
                ]
            }
            _ => {
                let (sum2, difference2) = (set.add(m[2], m[3]), set.sub(m[2], m[3]));
                let fourth = set.mul_add(set.splat(b * far), difference2, infinite);
                [
                    set.add(sum, sum2),
                    set.mul_add(set.splat(a), difference, set.scale(b, difference2)),
                    set.mul_add(set.splat(near), sum, set.scale(far, sum2)),
                    set.mul_add(set.splat(a * near), difference, fourth),
                ]
            }
        }
    }

    /// Returns A y at the finite points, for s outputs. At infinity, A y is the last output.
    #[inline(always)]
    pub fn gradient<S: Vectors>(self, set: S, s: usize, y: [S::Lanes; FINITE]) -> [S::Lanes; FINITE] {
        let zero = set.zero();
        let mut g = [y[0], zero, zero, zero];
        if s == 1 {
            return g;
        }
        // Missing outputs are zero.
        for (at, p) in [(0, self.near), (2, self.far)] {
            let square = set.splat(p * p);
            let (even, odd) =
                if s == 2 { (y[0], y[1]) } else { (set.mul_add(square, y[2], y[0]), set.mul_add(square, y[3], y[1])) };
            g[at] = set.mul_add(set.splat(p), odd, even);
            g[at + 1] = set.sub_mul(even, set.splat(p), odd);
            if s == 2 {
                return g;
            }
        }
        g
    }

    /// Returns G g for a filter of three taps: at `finite` points, at infinity, and the tap of the even phase.
    #[inline(always)]
    pub fn filter<S: Vectors, const N: usize>(self, set: S, finite: usize, g: [S::Lanes; 3]) -> [S::Lanes; N] {
        let mut u = [set.zero(); N];
        for (at, p) in [(0, self.near), (2, self.far)].into_iter().take(finite / 2) {
            u[at] = set.mul_add(set.splat(p), g[2], g[0]);
            u[at + 1] = set.sub_mul(g[0], set.splat(p), g[2]);
        }
        u[finite] = g[2];
        u[finite + 1] = g[1];
        u
    }

    /// Returns G^T u, the three taps.
    #[inline(always)]
    pub fn taps<S: Vectors, const N: usize>(self, set: S, finite: usize, u: [S::Lanes; N]) -> [S::Lanes; 3] {
        let (mut first, mut last) = (set.add(u[0], u[1]), u[finite]);
        last = set.mul_add(set.splat(self.near), set.sub(u[0], u[1]), last);
        if finite > 2 {
            first = set.add(first, set.add(u[2], u[3]));
            last = set.mul_add(set.splat(self.far), set.sub(u[2], u[3]), last);
        }
        [first, u[finite + 1], last]
    }
}

//! Where tiles of up to 2 x 4 outputs lie on the grid: the cells, where their products add up, and the places of a cell, one for each phase
//! of rows and columns. Tiles at the lower and right edge, of fewer rows or columns, are in fewer cells.

use super::super::ahead::Ahead;
use super::super::strip::{Run, tiles};
use super::lines::FINITE;
use crate::TensorDesc;

/// Rows and columns of outputs of a whole tile, each with a finite point.
pub const HIGH: usize = 2;
pub const WIDE: usize = FINITE;

/// Rows and columns of cells: the finite points, then infinity.
pub const DOWN: usize = HIGH + 1;
pub const ACROSS: usize = WIDE + 1;
pub const CELLS: usize = DOWN * ACROSS;

/// Columns of places: cells of the odd phase, then those of the even one, which has no infinity; rows likewise.
pub const PLACES_ACROSS: usize = ACROSS + WIDE;
pub const PLACES: usize = (DOWN + HIGH) * PLACES_ACROSS;

/// Lines of filters, and their length: those of the odd phase for each point, and that of the even one, which is the same for all.
pub const LINES: usize = DOWN + 1;
pub const LINE: usize = ACROSS + 1;
pub const FILTERS: usize = LINES * LINE;

/// The place of each phase of a cell, with the number of its filter.
pub fn phases(cell: usize) -> impl Iterator<Item = (usize, usize)> {
    let [r, c] = [cell / ACROSS, cell % ACROSS];
    let rows = [(r, r), (DOWN + r, DOWN)].into_iter().take(if r < HIGH { 2 } else { 1 });
    rows.flat_map(move |(row, line)| {
        let columns = [(c, c), (ACROSS + c, ACROSS)].into_iter().take(if c < WIDE { 2 } else { 1 });
        columns.map(move |(column, filter)| (row * PLACES_ACROSS + column, line * LINE + filter))
    })
}

/// Whether a tile of so many rows and columns is in a cell.
fn has([high, wide]: [usize; 2], cell: usize) -> bool {
    let [r, c] = [cell / ACROSS, cell % ACROSS];
    (r == HIGH || r < high) && (c == WIDE || c < wide)
}

/// A tile: its sample, first output row and column, and how many rows and columns it has.
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
        let (all, across) = (tiles(d, WIDE), w.div_ceil(WIDE));
        let (n, i) = (number / all, number % all);
        let (top, left) = (i / across * HIGH, i % across * WIDE);
        Self { n, top, left, size: [HIGH.min(h - top), WIDE.min(w - left)] }
    }

    /// The one that follows.
    fn next(self, d: &TensorDesc) -> Self {
        let (h, w) = (d.shape.h, d.shape.w);
        let Self { mut n, mut top, mut left, .. } = self;
        left += WIDE;
        if left >= w {
            (top, left) = (top + HIGH, 0);
        }
        if top >= h {
            (n, top) = (n + 1, 0);
        }
        Self { n, top, left, size: [HIGH.min(h - top), WIDE.min(w - left)] }
    }

    /// Whole tiles, those at the right edge, at the lower edge, in the corner.
    fn kind(&self) -> usize {
        2 * usize::from(self.size[0] < HIGH) + usize::from(self.size[1] < WIDE)
    }
}

/// The tiles of a run. In each cell those that are in it lie behind each other, kind after kind.
pub struct Tiles {
    /// The outputs.
    of: TensorDesc,
    run: Run,
    /// The row of each kind's first tile in each cell.
    first: [[usize; CELLS]; 4],
    /// Tiles in each cell.
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

    /// The pixels that the next run will touch in a tensor with these images, in as many calls as there are products.
    pub fn ahead(&self, desc: &TensorDesc, data: &[f32]) -> Ahead {
        Ahead::new(desc, data, (self.run, tiles(&self.of, WIDE)), 0, PLACES)
    }

    /// Those that lie side by side, each with its row in each cell, which counts where it has one.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let first = Tile::of(&self.of, self.run.first);
        let mut rest = Row { of: &self.of, tile: first, left: self.run.count, next: self.first };
        std::iter::from_fn(move || {
            let mut row = rest.clone();
            row.left = rest.left.min((self.of.shape.w - rest.tile.left).div_ceil(WIDE));
            // to where the next row begins
            (row.left > 0).then(|| {
                rest.nth(row.left - 1);
                row
            })
        })
    }
}

/// See [`Tiles::rows`].
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

//! Transforms plain OIHW filters to A x B values each (G g G^T), and their gradients back, with the matrices G of
//! F(2x4, 3x3) and F(2x2, 5x5). The loops process one filter per register lane at a time. The threads divide the groups
//! of columns.

use super::super::divide::{Divide, DividedMatrix, Matrix};
use super::super::threads::Threads;
use super::super::vector::{Job, MOST_LANES, Vectors, load, store};
use super::folded;
use super::phases::grid::{COLUMNS, LINE, Points, ROWS};
use super::strip::{PAD, padded, width};
use super::transform::{FAR, NEAR, kernel, transpose};

/// Side of the largest filters.
const SIDE: usize = 5;

/// Returns G g for a column or row g of a filter. `stride` is the convolution's stride.
#[inline(always)]
fn line<S: Vectors, const A: usize, const M: usize>(set: S, stride: usize, g: [S::Lanes; SIDE]) -> [S::Lanes; A] {
    if stride == 2 {
        return axis::<A>().filter(set, A - 2, [g[0], g[1], g[2]]);
    }
    let mut u = [set.zero(); A];
    let even = set.add(g[0], g[2]);
    if M == 4 {
        let (near, far) = (NEAR * NEAR, FAR * FAR);
        u[0] = set.scale(1.0 / (near * far), g[0]);
        for (at, point, scale) in [(1, NEAR, 0.5 / (near * (near - far))), (3, FAR, 0.5 / (far * (far - near)))] {
            let (even, odd) = (set.mul_add(set.splat(point * point), g[2], g[0]), set.scale(point, g[1]));
            u[at] = set.scale(scale, set.add(even, odd));
            u[at + 1] = set.scale(scale, set.sub(even, odd));
        }
        u[5] = g[2];
    } else if A == 4 {
        u[0] = g[0];
        u[1] = set.scale(0.5, set.add(even, g[1]));
        u[2] = set.scale(0.5, set.sub(even, g[1]));
        u[3] = g[2];
    } else {
        let (two, four) = (set.splat(2.0), set.splat(4.0));
        let (even, odd) = (set.add(even, g[4]), set.add(g[1], g[3]));
        let even2 = set.mul_add(four, set.mul_add(four, g[4], g[2]), g[0]);
        let odd2 = set.mul(two, set.mul_add(four, g[3], g[1]));
        u[0] = set.scale(0.25, g[0]);
        u[1] = set.scale(-1.0 / 6.0, set.add(even, odd));
        u[2] = set.scale(-1.0 / 6.0, set.sub(even, odd));
        u[3] = set.scale(1.0 / 24.0, set.add(even2, odd2));
        u[4] = set.scale(1.0 / 24.0, set.sub(even2, odd2));
        u[5] = g[4];
    }
    u
}

/// Returns the points along an axis for stride 2. An axis with [`LINE`] values has the points for columns, any other
/// length those for rows.
fn axis<const A: usize>() -> Points {
    if A == LINE { COLUMNS } else { ROWS }
}

/// Returns G^T u for a column or row u of a transformed filter's gradient.
#[inline(always)]
fn inverse_line<S: Vectors, const A: usize, const M: usize>(
    set: S,
    stride: usize,
    u: [S::Lanes; A],
) -> [S::Lanes; SIDE] {
    if stride == 2 {
        let [first, middle, last] = axis::<A>().taps(set, A - 2, u);
        return [first, middle, last, set.zero(), set.zero()];
    }
    let (sum, difference) = (set.add(u[1], u[2]), set.sub(u[1], u[2]));
    if A == 4 {
        let half = set.splat(0.5);
        let (first, last) = (set.mul_add(half, sum, u[0]), set.mul_add(half, sum, u[3]));
        return [first, set.scale(0.5, difference), last, set.zero(), set.zero()];
    }
    let (sum2, difference2) = (set.add(u[3], u[4]), set.sub(u[3], u[4]));
    if M == 4 {
        let (near2, far2) = (NEAR * NEAR, FAR * FAR);
        let (near, far) = (0.5 / (near2 * (near2 - far2)), 0.5 / (far2 * (far2 - near2)));
        let first = set.mul_add(set.splat(near), sum, set.scale(far, sum2));
        return [
            set.mul_add(set.splat(1.0 / (near2 * far2)), u[0], first),
            set.mul_add(set.splat(near * NEAR), difference, set.scale(far * FAR, difference2)),
            set.mul_add(set.splat(near * near2), sum, set.mul_add(set.splat(far * far2), sum2, u[5])),
            set.zero(),
            set.zero(),
        ];
    }
    let sixth = set.splat(1.0 / 6.0);
    let first = set.mul_add(set.splat(0.25), u[0], set.scale(1.0 / 24.0, sum2));
    let last = set.mul_add(set.splat(2.0 / 3.0), sum2, u[5]);
    [
        set.sub_mul(first, sixth, sum),
        set.sub_mul(set.scale(1.0 / 12.0, difference2), sixth, difference),
        set.scale(1.0 / 6.0, set.sub(sum2, sum)),
        set.sub_mul(set.scale(1.0 / 3.0, difference2), sixth, difference),
        set.sub_mul(last, sixth, sum),
    ]
}

/// Layout of transformed filters. Each filter has A x B values: A lines with B places each. Filters are in groups of
/// `width` columns. The other fields are distances in floats: from group to group, from row to row in a group, from
/// line to line, and from place to place in a line.
#[derive(Clone, Copy)]
struct Layout {
    width: usize,
    group: usize,
    row: usize,
    /// Floats between lines if each group of columns is stored separately. `None` if each place is a matrix with the
    /// values of all groups.
    line: Option<usize>,
    place: usize,
}

impl Layout {
    /// Returns row and column in the matrix `grid` for place (r, c) of a register at offset `at`. The matrix has a row
    /// for each place if each place is a matrix of its own, otherwise a single row.
    #[inline(always)]
    fn position<const B: usize>(&self, at: usize, (r, c): (usize, usize)) -> (usize, usize) {
        self.line.map_or((B * r + c, at), |line| (0, at + r * line + c * self.place))
    }

    /// Returns the floats per row of the matrix `grid`, see [`Self::position`].
    fn stride(&self, grid: &[f32]) -> usize {
        if self.line.is_some() { grid.len() } else { self.place }
    }
}

/// A register of filters: their row, their first column, and the offset of their value at the first place.
#[derive(Clone, Copy)]
struct Register {
    row: usize,
    column: usize,
    at: usize,
}

/// How plain filters become the matrix of a product. `columns` and `rows` are numbers of channels. Each lane of a
/// register holds a different column, and the product sums over the rows.
pub struct Filters {
    rows: usize,
    columns: usize,
    /// Floats from row to row, and from column to column.
    row_step: usize,
    column_step: usize,
    /// True if filters are rotated by 180 degrees.
    rotated: bool,
    /// The convolution's stride. At stride 2, the transform is that of [`phases`](super::phases).
    stride: usize,
}

impl Filters {
    /// Returns the layout for the forward pass and the weight gradient: rows are input channels, columns are output
    /// channels.
    pub fn forward<const A: usize>(ci: usize, co: usize) -> Self {
        let taps = kernel(A) * kernel(A);
        Self { rows: ci, columns: co, row_step: taps, column_step: ci * taps, rotated: false, stride: 1 }
    }

    /// Returns the layout for the input gradient: rows are output channels, columns are input channels, and filters are
    /// rotated.
    pub fn rotated<const A: usize>(ci: usize, co: usize) -> Self {
        let taps = kernel(A) * kernel(A);
        Self { rows: co, columns: ci, row_step: ci * taps, column_step: taps, rotated: true, stride: 1 }
    }

    /// Returns the same layout for filters of a stride-2 convolution, see [`phases`](super::phases).
    pub fn of_phases(self) -> Self {
        Self { stride: 2, ..self }
    }

    /// Returns the layout for the products of [`strip`](super::strip), for `columns` columns of filters or their
    /// gradient: each of the A x B places has a matrix.
    fn by_place<S: Vectors, const B: usize>(&self, columns: usize) -> Layout {
        let (rows, width) = (padded(self.rows), width::<S>(columns));
        let place = rows * padded(columns);
        Layout { width, group: rows * width, row: width, line: None, place }
    }

    /// Returns the layout for [`folded`].
    fn by_line<S: Vectors, const A: usize, const B: usize>(&self) -> Layout {
        let row = B * S::LANES;
        let line = padded(self.rows) * row;
        Layout { width: S::LANES, group: A * line, row, line: Some(line), place: S::LANES }
    }

    /// Returns the number of columns in a register that are not padding. `first` is the register's first column.
    fn lanes<S: Vectors>(&self, first: usize) -> usize {
        self.columns.saturating_sub(first).min(S::LANES)
    }

    /// Calls `f` for all registers of a group of columns.
    fn each_of<S: Vectors>(&self, layout: Layout, group: usize, mut f: impl FnMut(Register)) {
        for row in 0..padded(self.rows) {
            for lane in (0..layout.width).step_by(S::LANES) {
                let at = group * layout.group + row * layout.row + lane;
                f(Register { row, column: group * layout.width + lane, at });
            }
        }
    }

    /// Divides the groups of columns among the threads and calls `f(register, the thread's part of `parts`)` for all
    /// registers.
    fn each<S: Vectors, P: Divide>(
        &self,
        threads: Threads,
        layout: Layout,
        parts: P,
        f: impl Fn(Register, &mut P::Part) + Sync,
    ) {
        threads.divide(padded(self.columns) / layout.width, parts, |groups, mut part| {
            groups.for_each(|group| self.each_of::<S>(layout, group, |at| f(at, &mut part)));
        });
    }

    /// Divides plain OIHW filters into groups of `width` output channels. The matrix has a row for each output channel.
    /// Requires the layout of [`Self::forward`].
    pub fn by_columns<'a>(&self, w: &'a mut [f32], width: usize) -> DividedMatrix<'a, f32> {
        DividedMatrix::by_rows(w, self.column_step, width)
    }

    /// Computes G g G^T of all filters in the layout that the products need. Padding channels become zero.
    pub fn transform<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        threads: Threads,
        w: &[f32],
        grid: &mut [f32],
    ) {
        let folds = self.stride == 1 && folded::suits::<S>(A, padded(self.rows), padded(self.columns));
        let layout = if folds { self.by_line::<S, A, B>() } else { self.by_place::<S, B>(self.columns) };
        let stride = layout.stride(grid);
        let grid = DividedMatrix::by_columns(grid, stride, layout.group);
        self.each::<S, _>(threads, layout, grid, |at, grid| {
            set.run(Transform::<A, B, M> { filters: self, w, grid: grid.reborrow(), layout, at });
        });
    }

    /// Works like [`Self::transform`] for a single group of [`PAD`] columns. `grid` receives only this group, in the
    /// layout for the products of [`strip`](super::strip).
    pub fn transform_group<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        group: usize,
        w: &[f32],
        grid: &mut [f32],
    ) {
        let layout = Layout { group: 0, ..self.by_place::<S, B>(PAD) };
        let mut grid = Matrix::new(grid, layout.place);
        self.each_of::<S>(layout, group, |at| {
            set.run(Transform::<A, B, M> { filters: self, w, grid: grid.reborrow(), layout, at });
        });
    }

    /// Loads a tap for all filters in a register. Only the first `lanes` filters exist.
    #[inline(always)]
    fn tap<S: Vectors>(&self, set: S, w: &[f32], tap: usize, lanes: usize) -> S::Lanes {
        let mut values = [0.0; MOST_LANES];
        for (lane, value) in values.iter_mut().enumerate().take(lanes) {
            *value = w[lane * self.column_step + tap];
        }
        load(set, &values, 0)
    }

    /// Adds the threads' gradients of the transformed filters in order and transforms the sum to gradients of plain
    /// filters.
    pub fn gradient<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        threads: Threads,
        grids: &[f32],
        dw: &mut [f32],
    ) {
        let layout = self.by_place::<S, B>(self.columns);
        self.each::<S, _>(threads, layout, self.by_columns(dw, layout.width), |at, dw| {
            self.taps::<S, A, B, M>(set, at, (grids, layout.place, threads.0), dw, |to, tap| *to = tap);
        });
    }

    /// Transforms the gradient of a single group of [`PAD`] columns, which is stored separately, and adds it to plain
    /// filters that [`Self::by_columns`] has divided.
    pub fn add_group<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        group: usize,
        grid: &[f32],
        dw: &mut Matrix<'_, f32>,
    ) {
        let layout = Layout { group: 0, ..self.by_place::<S, B>(PAD) };
        self.each_of::<S>(layout, group, |at| {
            self.taps::<S, A, B, M>(set, at, (grid, layout.place, 1), dw, |to, tap| *to += tap);
        });
    }

    /// Calls `f(gradient, value)` for all taps of the filters in a register. `gradient` is the tap's element of dw, and
    /// `value` the tap's gradient that is computed from the sum of `count` transformed gradients in `grids`. Their places
    /// are `place` floats apart.
    fn taps<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        at: Register,
        (grids, place, count): (&[f32], usize, usize),
        dw: &mut Matrix<'_, f32>,
        f: impl Fn(&mut f32, f32),
    ) {
        if at.row >= self.rows {
            return;
        }
        let inverse = InverseTransform::<A, B, M> { grids: &grids[at.at..], place, count, stride: self.stride };
        let (taps, k) = (set.run(inverse), kernel(A));
        for lane in 0..self.lanes::<S>(at.column) {
            let to = dw.row(at.column + lane, at.row * self.row_step..at.row * self.row_step + k * k);
            for (to, taps) in to.chunks_exact_mut(k).zip(&taps) {
                to.iter_mut().zip(taps).for_each(|(to, lanes)| f(to, lanes[lane]));
            }
        }
    }
}

/// Computes G g G^T for the filters in a register, at all places.
struct Transform<'a, const A: usize, const B: usize, const M: usize> {
    filters: &'a Filters,
    w: &'a [f32],
    grid: Matrix<'a, f32>,
    layout: Layout,
    at: Register,
}

impl<const A: usize, const B: usize, const M: usize> Job for Transform<'_, A, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { filters, w, mut grid, layout, at } = self;
        let k = kernel(A);
        let lanes = if at.row < filters.rows { filters.lanes::<S>(at.column) } else { 0 };
        let from = w.get(at.row * filters.row_step + at.column * filters.column_step..).unwrap_or(&[]);
        let mut columns = [[set.zero(); A]; SIDE];
        for (c, column) in columns.iter_mut().enumerate().take(k) {
            let mut g = [set.zero(); SIDE];
            for (r, g) in g.iter_mut().enumerate().take(k) {
                let tap = if filters.rotated { k * k - 1 - (k * r + c) } else { k * r + c };
                *g = filters.tap(set, from, tap, lanes);
            }
            *column = line::<S, A, 2>(set, filters.stride, g);
        }
        for (r, row) in transpose(columns).into_iter().enumerate() {
            for (c, lanes) in line::<S, B, M>(set, filters.stride, row).into_iter().enumerate() {
                let (row, column) = layout.position::<B>(at.at, (r, c));
                store(set, lanes, grid.row(row, column..column + S::LANES));
            }
        }
    }
}

/// Computes G^T u G for the filters in a register, where u is the sum of `count` transformed gradients. The result has
/// the dimensions row, column, lane.
struct InverseTransform<'a, const A: usize, const B: usize, const M: usize> {
    grids: &'a [f32],
    place: usize,
    count: usize,
    stride: usize,
}

impl<const A: usize, const B: usize, const M: usize> Job for InverseTransform<'_, A, B, M> {
    type Output = [[[f32; MOST_LANES]; SIDE]; SIDE];

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) -> Self::Output {
        let mut columns = [[set.zero(); SIDE]; B];
        for (c, column) in columns.iter_mut().enumerate() {
            let mut u = [set.zero(); A];
            for (r, u) in u.iter_mut().enumerate() {
                for grid in 0..self.count {
                    *u = set.add(*u, load(set, self.grids, (grid * A * B + B * r + c) * self.place));
                }
            }
            *column = inverse_line::<S, A, 2>(set, self.stride, u);
        }
        let mut taps = [[[0.0; MOST_LANES]; SIDE]; SIDE];
        for (taps, row) in taps.iter_mut().zip(transpose(columns)) {
            for (to, lanes) in taps.iter_mut().zip(inverse_line::<S, B, M>(set, self.stride, row)) {
                store(set, lanes, to);
            }
        }
        taps
    }
}

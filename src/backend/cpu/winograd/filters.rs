//! Transforms between plain OIHW filters and the A x B grid, by the matrices G of F(2x4, 3x3) and F(2x2, 5x5): as many filters at
//! a time as a register has lanes, the groups of columns shared among the threads.

use super::super::threads::{Shared, Threads};
use super::folded;
use super::kernel::{padded, width};
use super::lines::{FAR, NEAR, kernel};
use super::transform::transpose;
use super::vector::{Job, MOST_LANES, Vectors};

/// Taps of the longest side of a filter.
const SIDE: usize = 5;

/// G g of one column or row of a filter.
#[inline(always)]
fn line<S: Vectors, const A: usize, const M: usize>(set: S, g: [S::Lanes; SIDE]) -> [S::Lanes; A] {
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

/// G^T u of one column or row.
#[inline(always)]
fn back_line<S: Vectors, const A: usize, const M: usize>(set: S, u: [S::Lanes; A]) -> [S::Lanes; SIDE] {
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

/// How a grid of filters lies: groups of `width` columns, and floats from one to the next group, row of a group, line of the grid, and
/// place of a line.
#[derive(Clone, Copy)]
struct Layout {
    width: usize,
    group: usize,
    row: usize,
    line: usize,
    place: usize,
}

/// Plain filters as the product sees them: `columns` run along the lanes, `rows` are summed over.
pub struct Filters {
    rows: usize,
    columns: usize,
    /// Floats from one to the next.
    row_step: usize,
    column_step: usize,
    /// Turned by 180 degrees.
    turned: bool,
}

impl Filters {
    /// For the forward pass and the weights' gradient: from input to output channels.
    pub fn forward<const A: usize>(ci: usize, co: usize) -> Self {
        let taps = kernel(A) * kernel(A);
        Self { rows: ci, columns: co, row_step: taps, column_step: ci * taps, turned: false }
    }

    /// For the gradient of the input: from output to input channels, turned.
    pub fn rotated<const A: usize>(ci: usize, co: usize) -> Self {
        let taps = kernel(A) * kernel(A);
        Self { rows: co, columns: ci, row_step: ci * taps, column_step: taps, turned: true }
    }

    /// Where they lie on the grid, in lines of B places, for [`kernel`](super::kernel), and their gradient.
    fn by_place<S: Vectors, const B: usize>(&self) -> Layout {
        let (rows, width) = (padded(self.rows), width::<S>(self.columns));
        let place = rows * padded(self.columns);
        Layout { width, group: rows * width, row: width, line: B * place, place }
    }

    /// Where they lie for [`folded`].
    fn by_line<S: Vectors, const A: usize, const B: usize>(&self) -> Layout {
        let row = B * S::LANES;
        let line = padded(self.rows) * row;
        Layout { width: S::LANES, group: A * line, row, line, place: S::LANES }
    }

    /// How many of the columns of a register that begins with `first` are there.
    fn lanes<S: Vectors>(&self, first: usize) -> usize {
        self.columns.saturating_sub(first).min(S::LANES)
    }

    /// Calls `f(row, first column of a register, where they stand at the first place)`, every group of columns on one thread.
    fn each<S: Vectors>(&self, threads: Threads, layout: Layout, f: impl Fn(usize, usize, usize) + Sync) {
        threads.each(padded(self.columns) / layout.width, |_, groups| {
            for group in groups {
                for row in 0..padded(self.rows) {
                    for lane in (0..layout.width).step_by(S::LANES) {
                        f(row, group * layout.width + lane, group * layout.group + row * layout.row + lane);
                    }
                }
            }
        });
    }

    /// G g G^T of all filters, in the layout of what computes with them; zeros where channels are padding.
    pub fn transform<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        threads: Threads,
        w: &[f32],
        grid: &mut [f32],
    ) {
        let folds = folded::suits::<S>(A, padded(self.rows), padded(self.columns));
        let layout = if folds { self.by_line::<S, A, B>() } else { self.by_place::<S, B>() };
        let grid = Shared::new(grid);
        self.each::<S>(threads, layout, |row, column, at| {
            let lanes = if row < self.rows { self.lanes::<S>(column) } else { 0 };
            let from = w.get(row * self.row_step + column * self.column_step..).unwrap_or(&[]);
            set.run(Transform::<A, B, M> { filters: self, from, lanes, grid: &grid, layout, at });
        });
    }

    /// One tap of as many filters as a register has lanes, the first `lanes` of which exist.
    #[inline(always)]
    fn tap<S: Vectors>(&self, set: S, w: &[f32], tap: usize, lanes: usize) -> S::Lanes {
        let mut values = [0.0; MOST_LANES];
        for (lane, value) in values.iter_mut().enumerate().take(lanes) {
            *value = w[lane * self.column_step + tap];
        }
        // SAFETY: no set has more lanes.
        unsafe { set.load(values.as_ptr()) }
    }

    /// The threads' gradients on the grid, added in their order, to plain filters.
    pub fn gradient<S: Vectors, const A: usize, const B: usize, const M: usize>(
        &self,
        set: S,
        threads: Threads,
        grids: &[f32],
        dw: &mut [f32],
    ) {
        let (layout, k) = (self.by_place::<S, B>(), kernel(A));
        let dw = Shared::new(dw);
        self.each::<S>(threads, layout, |row, column, at| {
            if row >= self.rows {
                return;
            }
            let taps = set.run(Back::<A, B, M> { grids: &grids[at..], place: layout.place, count: threads.0 });
            for lane in 0..self.lanes::<S>(column) {
                let from = row * self.row_step + (column + lane) * self.column_step;
                // SAFETY: the taps of this row and column are this call's alone.
                let to = unsafe { dw.part(from..from + k * k) };
                for (to, taps) in to.chunks_exact_mut(k).zip(&taps) {
                    to.iter_mut().zip(taps).for_each(|(to, lanes)| *to = lanes[lane]);
                }
            }
        });
    }
}

/// G g G^T of one register of filters, to row and columns `at` of every place.
struct Transform<'a, const A: usize, const B: usize, const M: usize> {
    filters: &'a Filters,
    from: &'a [f32],
    lanes: usize,
    grid: &'a Shared<f32>,
    layout: Layout,
    at: usize,
}

impl<const A: usize, const B: usize, const M: usize> Job for Transform<'_, A, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let k = kernel(A);
        let mut columns = [[set.zero(); A]; SIDE];
        for (c, column) in columns.iter_mut().enumerate().take(k) {
            let mut g = [set.zero(); SIDE];
            for (r, g) in g.iter_mut().enumerate().take(k) {
                let tap = if self.filters.turned { k * k - 1 - (k * r + c) } else { k * r + c };
                *g = self.filters.tap(set, self.from, tap, self.lanes);
            }
            *column = line::<S, A, 2>(set, g);
        }
        for (r, row) in transpose(columns).into_iter().enumerate() {
            for (c, lanes) in line::<S, B, M>(set, row).into_iter().enumerate() {
                let first = self.at + r * self.layout.line + c * self.layout.place;
                // SAFETY: this row, these columns and this place are this job's alone, and as long as a register.
                unsafe { set.store(lanes, self.grid.part(first..first + S::LANES).as_mut_ptr()) };
            }
        }
    }
}

/// G^T u G of one register of filters, u summed over so many grids: row, column, lane.
struct Back<'a, const A: usize, const B: usize, const M: usize> {
    grids: &'a [f32],
    place: usize,
    count: usize,
}

impl<const A: usize, const B: usize, const M: usize> Job for Back<'_, A, B, M> {
    type Output = [[[f32; MOST_LANES]; SIDE]; SIDE];

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) -> Self::Output {
        let mut columns = [[set.zero(); SIDE]; B];
        for (c, column) in columns.iter_mut().enumerate() {
            let mut u = [set.zero(); A];
            for (r, u) in u.iter_mut().enumerate() {
                for grid in 0..self.count {
                    let from = &self.grids[(grid * A * B + B * r + c) * self.place..][..S::LANES];
                    // SAFETY: the slice taken above.
                    *u = set.add(*u, unsafe { set.load(from.as_ptr()) });
                }
            }
            *column = back_line::<S, A, 2>(set, u);
        }
        let mut taps = [[[0.0; MOST_LANES]; SIDE]; SIDE];
        for (taps, row) in taps.iter_mut().zip(transpose(columns)) {
            for (to, lanes) in taps.iter_mut().zip(back_line::<S, B, M>(set, row)) {
                // SAFETY: no set has more lanes.
                unsafe { set.store(lanes, to.as_mut_ptr()) };
            }
        }
        taps
    }
}

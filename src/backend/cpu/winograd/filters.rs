//! Transforms between plain OIHW filters and the A x A grid, by the matrix G of F(2x2, 3x3) and F(2x2, 5x5): eight filters at a
//! time, the groups of [`WIDTH`] columns shared among the threads.

use std::arch::x86_64::{
    _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_storeu_ps,
};
use std::arch::x86_64::{_mm256_fnmadd_ps, _mm256_sub_ps};

use super::super::threads::{Shared, Threads};
use super::kernel::{WIDTH, padded};
use super::transform::{BLOCK, Lanes, kernel, transpose, zero};

/// Taps of the longest side of a filter.
const SIDE: usize = 5;

/// G g of one column or row of a filter.
#[target_feature(enable = "avx2,fma")]
fn line<const A: usize>(g: [Lanes; SIDE]) -> [Lanes; A] {
    let times = |factor: f32, v: Lanes| _mm256_mul_ps(_mm256_set1_ps(factor), v);
    let mut u = [zero(); A];
    let even = _mm256_add_ps(g[0], g[2]);
    if A == 4 {
        u[0] = g[0];
        u[1] = times(0.5, _mm256_add_ps(even, g[1]));
        u[2] = times(0.5, _mm256_sub_ps(even, g[1]));
        u[3] = g[2];
    } else {
        let (two, four) = (_mm256_set1_ps(2.0), _mm256_set1_ps(4.0));
        let (even, odd) = (_mm256_add_ps(even, g[4]), _mm256_add_ps(g[1], g[3]));
        let even2 = _mm256_fmadd_ps(four, _mm256_fmadd_ps(four, g[4], g[2]), g[0]);
        let odd2 = _mm256_mul_ps(two, _mm256_fmadd_ps(four, g[3], g[1]));
        u[0] = times(0.25, g[0]);
        u[1] = times(-1.0 / 6.0, _mm256_add_ps(even, odd));
        u[2] = times(-1.0 / 6.0, _mm256_sub_ps(even, odd));
        u[3] = times(1.0 / 24.0, _mm256_add_ps(even2, odd2));
        u[4] = times(1.0 / 24.0, _mm256_sub_ps(even2, odd2));
        u[5] = g[4];
    }
    u
}

/// G^T u of one column or row.
#[target_feature(enable = "avx2,fma")]
fn back_line<const A: usize>(u: [Lanes; A]) -> [Lanes; SIDE] {
    let times = |factor: f32, v: Lanes| _mm256_mul_ps(_mm256_set1_ps(factor), v);
    let (sum, difference) = (_mm256_add_ps(u[1], u[2]), _mm256_sub_ps(u[1], u[2]));
    if A == 4 {
        let half = _mm256_set1_ps(0.5);
        let (first, last) = (_mm256_fmadd_ps(half, sum, u[0]), _mm256_fmadd_ps(half, sum, u[3]));
        return [first, times(0.5, difference), last, zero(), zero()];
    }
    let (sum2, difference2) = (_mm256_add_ps(u[3], u[4]), _mm256_sub_ps(u[3], u[4]));
    let sixth = _mm256_set1_ps(1.0 / 6.0);
    let minus_sixth_of = |v: Lanes, plus: Lanes| _mm256_fnmadd_ps(sixth, v, plus);
    [
        minus_sixth_of(sum, _mm256_fmadd_ps(_mm256_set1_ps(0.25), u[0], times(1.0 / 24.0, sum2))),
        minus_sixth_of(difference, times(1.0 / 12.0, difference2)),
        times(1.0 / 6.0, _mm256_sub_ps(sum2, sum)),
        minus_sixth_of(difference, times(1.0 / 3.0, difference2)),
        minus_sixth_of(sum, _mm256_fmadd_ps(_mm256_set1_ps(2.0 / 3.0), sum2, u[5])),
    ]
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

    /// Floats of one place of the grid.
    fn place(&self) -> usize {
        padded(self.rows) * padded(self.columns)
    }

    /// Lanes of columns that are there, from `first` on.
    fn lanes(&self, first: usize) -> usize {
        self.columns.saturating_sub(first).min(BLOCK)
    }

    /// Calls `f(row, first column of eight, where they stand at each place)`, every group of columns on one thread.
    fn each(&self, threads: Threads, f: impl Fn(usize, usize, usize) + Sync) {
        let rows = padded(self.rows);
        threads.each(padded(self.columns) / WIDTH, |_, groups| {
            for group in groups {
                for row in 0..rows {
                    for half in [0, BLOCK] {
                        f(row, group * WIDTH + half, (group * rows + row) * WIDTH + half);
                    }
                }
            }
        });
    }

    /// G g G^T of all filters: place, group of [`WIDTH`] columns, row, column; zeros where channels are padding.
    pub fn transform<const A: usize>(&self, threads: Threads, w: &[f32], grid: &mut [f32]) {
        let place = self.place();
        let grid = Shared::new(&mut grid[..A * A * place]);
        self.each(threads, |row, column, at| {
            let lanes = if row < self.rows { self.lanes(column) } else { 0 };
            let from = w.get(row * self.row_step + column * self.column_step..).unwrap_or(&[]);
            // SAFETY: `plan` saw AVX2 and FMA on this processor.
            let places = unsafe { self.eight::<A>(from, lanes) };
            for (p, values) in places.iter().flatten().enumerate() {
                // SAFETY: the eight floats of this row, these columns and this place are this call's alone.
                unsafe { grid.part(p * place + at..p * place + at + BLOCK) }.copy_from_slice(values);
            }
        });
    }

    /// The grid of eight filters, the first `lanes` of which exist.
    #[target_feature(enable = "avx2,fma")]
    fn eight<const A: usize>(&self, w: &[f32], lanes: usize) -> [[[f32; BLOCK]; A]; A] {
        let k = kernel(A);
        let mut columns = [[zero(); A]; SIDE];
        for (c, column) in columns.iter_mut().enumerate().take(k) {
            let mut g = [zero(); SIDE];
            for (r, g) in g.iter_mut().enumerate().take(k) {
                let tap = if self.turned { k * k - 1 - (k * r + c) } else { k * r + c };
                let mut values = [0.0; BLOCK];
                for (lane, value) in values.iter_mut().enumerate().take(lanes) {
                    *value = w[lane * self.column_step + tap];
                }
                // SAFETY: eight values.
                *g = unsafe { _mm256_loadu_ps(values.as_ptr()) };
            }
            *column = line(g);
        }
        let mut grid = [[[0.0; BLOCK]; A]; A];
        for (to, row) in grid.iter_mut().zip(transpose(columns)) {
            for (to, lanes) in to.iter_mut().zip(line::<A>(row)) {
                // SAFETY: room for eight values.
                unsafe { _mm256_storeu_ps(to.as_mut_ptr(), lanes) };
            }
        }
        grid
    }

    /// The threads' gradients on the grid, added in their order, to plain filters.
    pub fn gradient<const A: usize>(&self, threads: Threads, grids: &[f32], dw: &mut [f32]) {
        let (place, k) = (self.place(), kernel(A));
        let dw = Shared::new(dw);
        self.each(threads, |row, column, at| {
            if row >= self.rows {
                return;
            }
            // SAFETY: `plan` saw AVX2 and FMA on this processor.
            let taps = unsafe { back::<A>(&grids[at..], place, threads.0) };
            (0..self.lanes(column)).for_each(|lane| {
                let from = row * self.row_step + (column + lane) * self.column_step;
                // SAFETY: the taps of this row and column are this call's alone.
                let to = unsafe { dw.part(from..from + k * k) };
                for (to, taps) in to.chunks_exact_mut(k).zip(&taps) {
                    to.iter_mut().zip(taps).for_each(|(to, lanes)| *to = lanes[lane]);
                }
            });
        });
    }
}

/// G^T u G of eight filters, u summed over so many grids: row, column, lane.
#[target_feature(enable = "avx2,fma")]
fn back<const A: usize>(grids: &[f32], place: usize, count: usize) -> [[[f32; BLOCK]; SIDE]; SIDE] {
    let mut columns = [[zero(); SIDE]; A];
    for (c, column) in columns.iter_mut().enumerate() {
        let mut u = [zero(); A];
        for (r, u) in u.iter_mut().enumerate() {
            for grid in 0..count {
                let from = &grids[(grid * A * A + A * r + c) * place..][..BLOCK];
                // SAFETY: eight values.
                *u = _mm256_add_ps(*u, unsafe { _mm256_loadu_ps(from.as_ptr()) });
            }
        }
        *column = back_line(u);
    }
    let mut taps = [[[0.0; BLOCK]; SIDE]; SIDE];
    for (taps, row) in taps.iter_mut().zip(transpose(columns)) {
        for (to, lanes) in taps.iter_mut().zip(back_line::<A>(row)) {
            // SAFETY: room for eight values.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), lanes) };
        }
    }
    taps
}

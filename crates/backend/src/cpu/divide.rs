//! Slices that the threads of a parallel loop divide among themselves. Each thread gets its own slice or matrix, so the loops need no
//! `unsafe`.

use std::marker::PhantomData;
use std::ops::Range;

/// Data that a parallel loop divides into a part per thread. See [`Threads::divide`](super::threads::Threads::divide).
pub trait Divide: Sync {
    type Part;

    /// Returns the part that belongs to `thread`, which processes `items`.
    ///
    /// # Safety
    /// While the part is in use, no other call on this value may have the same `thread` or any of the same `items`.
    unsafe fn part(&self, thread: usize, items: Range<usize>) -> Self::Part;
}

/// A mutable slice behind a pointer, for divisions that no other type of this module describes.
pub struct SharedSlice<'a, T> {
    data: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: callers of `part` ensure that parts are disjoint, so sending it to a thread is like sending a `&mut [T]`.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}
// SAFETY: as for `Send`. `part` is the only access.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { data: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Returns the elements of a range. Panics if the range is not inside the slice.
    ///
    /// # Safety
    /// While the returned elements are in use, no other call may return any of them.
    #[inline(always)]
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {}", self.len);
        // SAFETY: the range is in bounds of a slice that is borrowed for 'a. The caller ensures that nothing else uses
        // these elements.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

/// Returns the range of elements that belong to some units of `unit` elements each, limited to `len`. Disjoint units
/// have disjoint elements, even if the product overflows.
fn elements(units: Range<usize>, unit: usize, len: usize) -> Range<usize> {
    let end = |units: usize| units.saturating_mul(unit).min(len);
    end(units.start)..end(units.end)
}

/// A slice with `unit` elements for each item, perhaps fewer for the last item. A thread gets the elements of its
/// items.
pub struct Items<'a, T> {
    slice: SharedSlice<'a, T>,
    unit: usize,
}

impl<'a, T> Items<'a, T> {
    pub fn new(slice: &'a mut [T], unit: usize) -> Self {
        Self { slice: SharedSlice::new(slice), unit }
    }
}

impl<'a, T: Send> Divide for Items<'a, T> {
    type Part = &'a mut [T];

    unsafe fn part(&self, _: usize, items: Range<usize>) -> Self::Part {
        // SAFETY: disjoint items have disjoint elements, and the caller ensures that the items are disjoint.
        unsafe { self.slice.part(elements(items, self.unit, self.slice.len)) }
    }
}

/// A slice with `each` elements for every thread, independent of the thread's items.
pub struct PerThread<'a, T> {
    slice: SharedSlice<'a, T>,
    each: usize,
}

impl<'a, T> PerThread<'a, T> {
    pub fn new(slice: &'a mut [T], each: usize) -> Self {
        Self { slice: SharedSlice::new(slice), each }
    }
}

impl<'a, T: Send> Divide for PerThread<'a, T> {
    type Part = &'a mut [T];

    unsafe fn part(&self, thread: usize, _: Range<usize>) -> Self::Part {
        // SAFETY: different threads have disjoint elements, and the caller ensures that the threads differ.
        unsafe { self.slice.part(elements(thread..thread + 1, self.each, self.slice.len)) }
    }
}

/// Exclusive access to some rows and columns of a row-major matrix in a slice.
pub struct Matrix<'a, T> {
    slice: SharedSlice<'a, T>,
    /// Distance from a row to the next, in elements.
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl<'a, T> Matrix<'a, T> {
    /// Covers all complete rows of `stride` elements in the slice.
    pub fn new(slice: &'a mut [T], stride: usize) -> Self {
        let rows = 0..slice.len().checked_div(stride).unwrap_or(0);
        Self { slice: SharedSlice::new(slice), stride, rows, columns: 0..stride }
    }

    /// Returns some columns of a row. Row and columns are indices in the whole matrix. Panics if they are outside this
    /// part.
    #[inline(always)]
    pub fn row(&mut self, row: usize, columns: Range<usize>) -> &mut [T] {
        let has_row = self.rows.start <= row && row < self.rows.end;
        assert!(
            has_row && self.columns.start <= columns.start && columns.end <= self.columns.end,
            "outside of this part of the matrix"
        );
        let first = row * self.stride;
        // SAFETY: only this part has these rows and columns, and it is borrowed while the returned elements are in use.
        unsafe { self.slice.part(first + columns.start..first + columns.end) }
    }

    /// Returns the same part with a shorter lifetime.
    #[inline(always)]
    pub fn reborrow(&mut self) -> Matrix<'_, T> {
        // SAFETY: this part is borrowed while the result is in use.
        unsafe { self.section(self.rows.clone(), self.columns.clone()) }
    }

    /// Returns the address of the first element of the whole matrix, for prefetch hints.
    pub fn as_ptr(&self) -> *const T {
        self.slice.data
    }

    /// # Safety
    /// This part must contain these rows and columns, and nothing else may use them while the result is in use.
    unsafe fn section(&self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let slice = SharedSlice { data: self.slice.data, len: self.slice.len, slice: PhantomData };
        Matrix { slice, stride: self.stride, rows, columns }
    }
}

/// A matrix that is divided by rows or by columns. Each item has `unit` rows or columns.
pub struct DividedMatrix<'a, T> {
    matrix: Matrix<'a, T>,
    unit: usize,
    by_columns: bool,
}

impl<'a, T> DividedMatrix<'a, T> {
    /// Divides the rows of a slice, which have `stride` elements each.
    pub fn by_rows(slice: &'a mut [T], stride: usize, unit: usize) -> Self {
        Self { matrix: Matrix::new(slice, stride), unit, by_columns: false }
    }

    /// Divides the columns of a slice with rows of `stride` elements.
    pub fn by_columns(slice: &'a mut [T], stride: usize, unit: usize) -> Self {
        Self { matrix: Matrix::new(slice, stride), unit, by_columns: true }
    }

    /// Returns the same matrix with a shorter lifetime.
    pub fn reborrow(&mut self) -> DividedMatrix<'_, T> {
        DividedMatrix { matrix: self.matrix.reborrow(), ..*self }
    }
}

impl<'a, T: Send> Divide for DividedMatrix<'a, T> {
    type Part = Matrix<'a, T>;

    unsafe fn part(&self, _: usize, items: Range<usize>) -> Self::Part {
        let Matrix { rows, columns, .. } = &self.matrix;
        let (rows, columns) = match self.by_columns {
            false => (elements(items, self.unit, rows.end), columns.clone()),
            true => (rows.clone(), elements(items, self.unit, columns.end)),
        };
        // SAFETY: disjoint items have disjoint rows or columns, and the caller ensures that the items are disjoint.
        unsafe { self.matrix.section(rows, columns) }
    }
}

impl Divide for () {
    type Part = ();

    unsafe fn part(&self, _: usize, _: Range<usize>) {}
}

impl<P: Divide> Divide for Option<P> {
    type Part = Option<P::Part>;

    unsafe fn part(&self, thread: usize, items: Range<usize>) -> Self::Part {
        // SAFETY: the caller keeps the promise of `part`.
        self.as_ref().map(|whole| unsafe { whole.part(thread, items) })
    }
}

impl<A: Divide, B: Divide> Divide for (A, B) {
    type Part = (A::Part, B::Part);

    unsafe fn part(&self, thread: usize, items: Range<usize>) -> Self::Part {
        // SAFETY: the caller keeps the promise of `part`, so it holds for both values.
        unsafe { (self.0.part(thread, items.clone()), self.1.part(thread, items)) }
    }
}

impl<A: Divide, B: Divide, C: Divide> Divide for (A, B, C) {
    type Part = (A::Part, B::Part, C::Part);

    unsafe fn part(&self, thread: usize, items: Range<usize>) -> Self::Part {
        // SAFETY: the caller keeps the promise of `part`, so it holds for all three values.
        unsafe { (self.0.part(thread, items.clone()), self.1.part(thread, items.clone()), self.2.part(thread, items)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::threads::Threads;
    use super::*;

    #[test]
    fn divided_parts_cover_every_element_once() {
        for (threads, items) in [(1, 5), (2, 5), (3, 7), (4, 2)] {
            let threads = Threads(threads);
            // The last item is incomplete, and the slice is longer than the threads need.
            let (mut by_item, mut own) = (vec![0; items * 3 - 1], vec![0; threads.0 * 2 + 1]);
            let (mut rows, mut columns) = (vec![0; 2 * items * 4], vec![0; 3 * (items * 2 - 1)]);
            let matrices = (
                DividedMatrix::by_rows(&mut rows, 4, 2),
                Some(DividedMatrix::by_columns(&mut columns, items * 2 - 1, 2)),
            );
            let parts = (Items::new(&mut by_item, 3), PerThread::new(&mut own, 2), matrices);
            threads.divide(items, parts, |items, (by_item, own, (mut rows, columns))| {
                by_item.iter_mut().chain(own).for_each(|x| *x += 1);
                for row in items.start * 2..items.end * 2 {
                    rows.row(row, 0..4).iter_mut().for_each(|x| *x += 1);
                }
                let mut columns = columns.expect("given");
                let Range { start, end } = columns.columns.clone();
                (0..3).for_each(|row| columns.row(row, start..end).iter_mut().for_each(|x| *x += 1));
            });
            let busy = threads.0.min(items);
            assert_eq!(own.iter().sum::<i32>() as usize, 2 * busy);
            assert!([by_item, rows, columns].iter().flatten().all(|x| *x == 1), "{threads:?}, {items} items");
        }
    }

    #[test]
    fn access_outside_a_matrix_section_panics() {
        let others = [(0, 2..4), (1, 0..3), (2, 2..4), (1, 2..7)];
        for (row, columns) in others {
            let mut slice = [0; 12];
            let whole = Matrix::new(&mut slice, 4);
            // SAFETY: there is no other part.
            let mut part = unsafe { whole.section(1..2, 2..4) };
            assert_eq!(part.row(1, 2..4).len(), 2);
            let outside =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| part.row(row, columns.clone()).len()));
            assert!(outside.is_err(), "row {row}, columns {columns:?}");
        }
    }
}

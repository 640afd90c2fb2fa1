//! Loops over slices on the pool that oneDNN uses.

use super::team;

/// A pool of a fixed number of threads; work is cut into as many equal runs, so results do not depend on timing.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

/// A slice that threads write in disjoint parts.
#[derive(Clone, Copy)]
pub struct Shared<T> {
    data: *mut T,
    len: usize,
}

// SAFETY: access goes through `part`, whose caller promises disjoint ranges.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Shares a slice for the duration of one parallel region.
    pub fn new(slice: &mut [T]) -> Self {
        Self { data: slice.as_mut_ptr(), len: slice.len() }
    }

    /// Elements of the whole slice.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The elements of a range.
    ///
    /// # Safety
    /// No two live parts may overlap, and the slice given to `new` must still be borrowed.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {}", self.len);
        // SAFETY: in bounds; the caller promises that nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

impl Threads {
    /// The run of `items` that thread `t` does.
    pub fn share(&self, t: usize, items: usize) -> std::ops::Range<usize> {
        t * items / self.0..(t + 1) * items / self.0
    }

    /// Whether so many equal items leave no thread idle for more than a fifth of the time.
    pub fn are_busy(&self, items: usize) -> bool {
        4 * items.next_multiple_of(self.0) <= 5 * items
    }

    /// `f(thread, items of this thread)` on every thread that has any.
    pub fn each(&self, items: usize, f: impl Fn(usize, std::ops::Range<usize>) + Sync) {
        team::parallel(self.0, &|t| {
            let share = self.share(t, items);
            if !share.is_empty() {
                f(t, share);
            }
        });
    }

    /// Cuts `y` into as many runs as there are threads, on boundaries of `unit` elements: `f(first unit, run)`.
    pub fn split<T: Send>(&self, y: &mut [T], unit: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let len = y.len();
        let shared = Shared::new(y);
        self.each(len.div_ceil(unit), |_, units| {
            let end = (units.end * unit).min(len);
            // SAFETY: the runs of different threads are disjoint, and `y` is borrowed until `each` returns.
            f(units.start, unsafe { shared.part(units.start * unit..end) });
        });
    }
}

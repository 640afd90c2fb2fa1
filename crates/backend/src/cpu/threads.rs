//! Parallel loops over slices. oneDNN's primitives and our own loops share an OpenMP team of threads.

use std::cell::Cell;
use std::{mem, ptr};

use super::divide::{Divide, Items};
use super::sys;
use crate::{Error, Regions};

/// A pool with a fixed number of threads. Work is divided into equal ranges, one per thread, so results do not depend
/// on timing.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

impl Threads {
    /// Returns the range of `items` that thread `t` processes.
    pub fn share(&self, t: usize, items: usize) -> std::ops::Range<usize> {
        t * items / self.0..(t + 1) * items / self.0
    }

    /// Returns the threads that have work when all threads share `items` items.
    pub fn with_items(self, items: usize) -> impl Iterator<Item = usize> {
        (0..self.0).filter(move |thread| !self.share(*thread, items).is_empty())
    }

    /// Returns true if no thread is idle for more than a fifth of the time with `items` items of equal cost.
    pub fn are_busy(&self, items: usize) -> bool {
        4 * items.next_multiple_of(self.0) <= 5 * items
    }

    /// Calls `f(thread, items of this thread)` on every thread that has items.
    pub fn each(&self, items: usize, f: impl Fn(usize, std::ops::Range<usize>) + Sync) {
        parallel(self.0, &|t| {
            let share = self.share(t, items);
            if !share.is_empty() {
                f(t, share);
            }
        });
    }

    /// Calls `f(items of a thread, its part of `parts`)` on every thread that has items.
    pub fn divide<P: Divide>(&self, items: usize, parts: P, f: impl Fn(std::ops::Range<usize>, P::Part) + Sync) {
        // If the product overflowed, the items of different threads could overlap.
        assert!(items.checked_mul(self.0).is_some(), "{items} items for {} threads", self.0);
        self.each(items, |thread, items| {
            // SAFETY: every thread is passed once, with different items, and `parts` is not used otherwise.
            let part = unsafe { parts.part(thread, items.clone()) };
            f(items, part);
        });
    }

    /// Divides `y` among the threads, at multiples of `unit` elements, and calls `f(first unit, range)`.
    pub fn split<T: Send>(&self, y: &mut [T], unit: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        self.divide(y.len().div_ceil(unit), Items::new(y, unit), |units, run| f(units.start, run));
    }

    /// Divides `y` among the threads and calls `f(number, item)` for each item of `unit` elements.
    pub fn each_item<T: Send>(&self, y: &mut [T], unit: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        self.split(y, unit, |first, run| {
            for (number, item) in (first..).zip(run.chunks_exact_mut(unit)) {
                f(number, item);
            }
        });
    }

    /// Works like [`Self::split`], but calls `f(range, the same elements of x)`.
    pub fn split_both<T: Send, X: Sync>(&self, y: &mut [T], x: &[X], unit: usize, f: impl Fn(&mut [T], &[X]) + Sync) {
        self.split(y, unit, |first, run| f(run, &x[first * unit..][..run.len()]));
    }
}

/// Returns the number of threads that OpenMP really starts.
pub fn team_size(threads: usize) -> usize {
    let team = std::sync::atomic::AtomicUsize::new(1);
    parallel(threads, &|_| {
        // SAFETY: the function is only a query, inside a parallel region.
        let size = unsafe { sys::omp_get_num_threads() };
        team.store(size as usize, std::sync::atomic::Ordering::Relaxed);
    });
    team.into_inner()
}

/// Runs `f(share)` for each share from 0 to `threads` - 1 on OpenMP's pool. oneDNN uses the same pool, because two
/// pools would compete for the cores. If OpenMP grants fewer threads, some threads run more shares.
pub fn parallel(threads: usize, f: &(dyn Fn(usize) + Sync)) {
    struct Region<'a> {
        f: &'a (dyn Fn(usize) + Sync),
        threads: usize,
    }
    extern "C" fn enter(data: *mut std::ffi::c_void) {
        // SAFETY: `data` is the address of the region below, which is alive until GOMP_parallel returns and is Sync.
        let region = unsafe { &*data.cast::<Region<'_>>() };
        // SAFETY: both functions are only queries, inside a parallel region.
        let (thread, team) = unsafe { (sys::omp_get_thread_num() as usize, sys::omp_get_num_threads() as usize) };
        (thread..region.threads).step_by(team.max(1)).for_each(region.f);
    }
    count(Regions { own: 1, library: 0 });
    if threads == 1 {
        return f(0);
    }
    let region = Region { f, threads };
    let data = (&raw const region).cast_mut().cast();
    // SAFETY: the parallel region ends before this call returns, so everything it borrows outlives the threads' use.
    unsafe { sys::GOMP_parallel(Some(enter), data, threads as u32, 0) }
}

thread_local! {
    static SO_FAR: Cell<Regions> = const { Cell::new(Regions { own: 0, library: 0 }) };
}

fn count(more: Regions) {
    let mut sum = SO_FAR.get();
    sum += more;
    SO_FAR.set(sum);
}

pub fn count_library_region() {
    count(Regions { own: 0, library: 1 });
}

/// Returns the number of regions of this thread so far.
pub fn regions() -> Regions {
    SO_FAR.get()
}

// All threads that call oneDNN must block signals that have handlers. oneDNN's generated matrix kernels use the stack
// pointer as an additional register that points into a buffer. The frame of a signal handler would overwrite the memory
// in front of it.

/// Signals that an instruction of the thread itself raises. No other thread can receive them.
const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Blocks every signal that has a handler, for the calling thread and the threads that it will start. Another thread of
/// the process receives them. Signals without a handler keep their default action.
pub fn block_handled_signals() -> Result<(), Error> {
    // SAFETY: the calls read and write local plain-data values, for which zeros are valid, and change only this
    // thread's mask.
    let status = unsafe {
        let mut handled: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut handled);
        for signal in (1..libc::SIGRTMIN()).filter(|signal| !FAULTS.contains(signal)) {
            let mut now: libc::sigaction = mem::zeroed();
            // This only queries the disposition of a signal.
            let known = libc::sigaction(signal, ptr::null(), &mut now) == 0;
            if known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction) {
                libc::sigaddset(&mut handled, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &handled, ptr::null_mut())
    };
    if status == 0 {
        return Ok(());
    }
    let status = std::io::Error::from_raw_os_error(status).to_string();
    Err(Error::Foreign { library: "libc", call: "pthread_sigmask", op: "compute threads".into(), status })
}

//! Loops over slices on oneDNN's pool of threads, OpenMP's team, which oneDNN's primitives share with our own loops.

use std::cell::Cell;
use std::{mem, ptr};

use super::divide::{Divide, Items};
use super::sys;
use crate::{Error, Regions};

/// A pool of a fixed number of threads; work is cut into as many equal runs, so results do not depend on timing.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

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
        parallel(self.0, &|t| {
            let share = self.share(t, items);
            if !share.is_empty() {
                f(t, share);
            }
        });
    }

    /// `f(items of a thread, its part of `parts`)` on every thread that has any items.
    pub fn divide<P: Divide>(&self, items: usize, parts: P, f: impl Fn(std::ops::Range<usize>, P::Part) + Sync) {
        // else the threads' items might overlap
        assert!(items.checked_mul(self.0).is_some(), "{items} items for {} threads", self.0);
        self.each(items, |thread, items| {
            // SAFETY: every thread number comes once, with items of its own, and `parts` is used for nothing else.
            let part = unsafe { parts.part(thread, items.clone()) };
            f(items, part);
        });
    }

    /// Cuts `y` into as many runs as there are threads, on boundaries of `unit` elements: `f(first unit, run)`.
    pub fn split<T: Send>(&self, y: &mut [T], unit: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        self.divide(y.len().div_ceil(unit), Items::new(y, unit), |units, run| f(units.start, run));
    }
}

/// How many threads OpenMP really starts.
pub fn size(threads: usize) -> usize {
    let team = std::sync::atomic::AtomicUsize::new(1);
    parallel(threads, &|_| {
        // SAFETY: a query inside a parallel region.
        let size = unsafe { sys::omp_get_num_threads() };
        team.store(size as usize, std::sync::atomic::Ordering::Relaxed);
    });
    team.into_inner()
}

/// Runs `f(share)` for share = 0..threads on OpenMP's own pool, the one that the primitives use: two pools would fight. Should
/// OpenMP grant fewer threads, those that run take several shares.
pub fn parallel(threads: usize, f: &(dyn Fn(usize) + Sync)) {
    struct Region<'a> {
        f: &'a (dyn Fn(usize) + Sync),
        threads: usize,
    }
    extern "C" fn enter(data: *mut std::ffi::c_void) {
        // SAFETY: `data` is the address of the region below, alive until GOMP_parallel returns; it is Sync.
        let region = unsafe { &*data.cast::<Region<'_>>() };
        // SAFETY: queries inside a parallel region.
        let (thread, team) = unsafe { (sys::omp_get_thread_num() as usize, sys::omp_get_num_threads() as usize) };
        (thread..region.threads).step_by(team.max(1)).for_each(region.f);
    }
    count_own();
    if threads == 1 {
        return f(0);
    }
    let region = Region { f, threads };
    let data = (&raw const region).cast_mut().cast();
    // SAFETY: the parallel region ends before this call returns, so what it borrows outlives every thread's use of it.
    unsafe { sys::GOMP_parallel(Some(enter), data, threads as u32, 0) }
}

thread_local! {
    static SO_FAR: Cell<Regions> = const { Cell::new(Regions { own: 0, library: 0 }) };
}

fn add(more: Regions) {
    SO_FAR.with(|so_far| {
        let mut sum = so_far.get();
        sum += more;
        so_far.set(sum);
    });
}

/// Counts a loop of our own.
pub fn count_own() {
    add(Regions { own: 1, library: 0 });
}

/// Counts a primitive of oneDNN.
pub fn count_library() {
    add(Regions { own: 0, library: 1 });
}

/// All that were counted.
pub fn so_far() -> Regions {
    SO_FAR.get()
}

// Signals stay away from threads that run oneDNN: its generated matrix kernels use the stack pointer as one more register that
// points into a buffer of theirs, so a signal handler's frame would overwrite whatever lies in front of that buffer.

/// Signals that a thread's own instruction raises; no other thread can take them.
const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Blocks every signal that has a handler, for the calling thread and those that it will start: another thread of the process
/// takes them. Signals without a handler do what they always do.
pub fn leave_to_others() -> Result<(), Error> {
    // SAFETY: the calls read and write local values of plain memory, for which zeros are valid, and change nothing but this thread's mask.
    let status = unsafe {
        let mut handled: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut handled);
        for signal in (1..libc::SIGRTMIN()).filter(|signal| !FAULTS.contains(signal)) {
            let mut now: libc::sigaction = mem::zeroed();
            // asks for the disposition of a signal
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

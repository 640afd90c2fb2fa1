//! OpenMP's team of threads, which oneDNN's primitives and our own loops share.

use super::{regions, sys};

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
    regions::count_own();
    if threads == 1 {
        return f(0);
    }
    let region = Region { f, threads };
    let data = (&raw const region).cast_mut().cast();
    // SAFETY: the parallel region ends before this call returns, so what it borrows outlives every thread's use of it.
    unsafe { sys::GOMP_parallel(Some(enter), data, threads as u32, 0) }
}

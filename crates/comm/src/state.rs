//! How far MPI is in this process, which thread owns it, and which rank this is: what the end of a run must know at any time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// How far MPI is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Initialisation is under way on the MPI thread.
    Starting = 1,
    /// Initialisation is over, well or badly.
    Running = 2,
    /// Finalised, or never started.
    Ended = 3,
}

static PHASE: AtomicU8 = AtomicU8::new(0);
static RANK: AtomicUsize = AtomicUsize::new(0);
/// Zero until MPI is initialised.
static SIZE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWNS_MPI: Cell<bool> = const { Cell::new(false) };
}

/// MPI has reached this phase.
pub fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::SeqCst);
}

/// Whether initialisation is under way.
pub fn is_starting() -> bool {
    PHASE.load(Ordering::SeqCst) == Phase::Starting as u8
}

/// Notes this rank's number and the number of ranks.
pub fn set_rank(rank: usize, size: usize) {
    RANK.store(rank, Ordering::SeqCst);
    SIZE.store(size, Ordering::SeqCst);
}

/// Rank and number of ranks, once MPI is initialised.
pub fn rank_and_size() -> Option<(usize, usize)> {
    match SIZE.load(Ordering::SeqCst) {
        0 => None,
        size => Some((RANK.load(Ordering::SeqCst), size)),
    }
}

/// Makes the caller the MPI thread.
pub fn own_mpi() {
    OWNS_MPI.set(true);
}

/// Whether the caller is the MPI thread.
pub fn on_mpi_thread() -> bool {
    OWNS_MPI.get()
}

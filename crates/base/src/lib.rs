//! Small helpers shared by the other crates: text for display, SIMD levels, bf16, the cores of this process, terminal
//! output, the environment at startup, and types for crates that do not depend on each other.

pub mod bf16;
pub mod code_spec;
pub mod cores;
pub mod device_region;
pub mod environment;
pub mod fnv;
pub mod run_state;
pub mod screen;
pub mod simd;
pub mod text;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. If another thread panicked while it held the lock, the value is still used. The panic is reported
/// elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Synchronisation primitives for protocols that `tests/loom` checks with every interleaving. In that crate, the same
/// names refer to loom's types.
pub mod sync {
    pub use crossbeam_channel::{Receiver, Sender, bounded};
    pub use std::sync::{Condvar, Mutex};
    pub use std::thread::{Builder, JoinHandle};
}

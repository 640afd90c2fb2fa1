//! The synchronisation primitives of a loader's threads. `tests/loom` replaces them by loom's types of the same names
//! and tries every possible order of the threads.

pub use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
pub use std::sync::Mutex;
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use std::thread::{Builder, JoinHandle};

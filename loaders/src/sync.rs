//! What the threads of a loader share and wait with. `tests/loom` tries every order in which they can run: there the same names stand for
//! loom's.

pub use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
pub use std::sync::Mutex;
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use std::thread::{Builder, JoinHandle};

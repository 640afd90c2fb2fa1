//! The names of `sync` in the program and in `loaders`, as loom has them.

pub use crate::channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use loom::sync::{Condvar, Mutex};
pub use loom::thread::{Builder, JoinHandle};

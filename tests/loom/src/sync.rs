//! The names in the `sync` modules of the program and of `loaders`, with loom's types.

pub use crate::channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use loom::sync::{Condvar, Mutex};
pub use loom::thread::{Builder, JoinHandle};

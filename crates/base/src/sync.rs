//! What threads wait for each other with, for the protocols of which `tests/loom` tries every order: there the same names stand for
//! loom's.

pub use crossbeam_channel::{Receiver, Sender, bounded};
pub use std::sync::{Condvar, Mutex};
pub use std::thread::{Builder, JoinHandle};

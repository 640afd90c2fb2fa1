//! The synchronisation primitives of protocols that `tests/loom` tests with every interleaving. In those tests, the
//! same names refer to loom's types.

pub use crossbeam_channel::{Receiver, Sender, bounded};
pub use std::sync::{Condvar, Mutex};
pub use std::thread::{Builder, JoinHandle};

//! The watchdog: names the ranks that keep the others waiting, and why, also while MPI and every other thread of a rank are stuck.
//!
//! Each rank notes what it does ([`Watch::set_activity`]), and [`Comm`](comm::Comm) numbers its operations. Two threads look at
//! that: the *beacon* shares it through small files under OUT/.ranks, since MPI cannot be called while it blocks (and may have granted
//! one thread at a time); the *watchdog* judges from memory alone, so that it works even where the file system hangs. `verdict` has the
//! rules and the sentences.

mod activity;
mod beacon;
mod first_step;
mod limits;
mod news;
mod verdict;
mod watchdog;

pub use activity::Activity;
pub use limits::Limits;
pub use watchdog::Watch;

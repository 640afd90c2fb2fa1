//! Communication between ranks: the only part of trireme that names MPI.
//!
//! One thread owns MPI ([`thread`]); through a [`Comm`] others do operations in their turn, or send the owner work and wait for the
//! [`Pending`] answer. The one exception to the order is [`die()`], which may abort from any thread.
//!
//! - `sys`: the raw calls, each checked; [`mod@world`]: the typed collectives on top, and values of any type as JSON;
//! - [`mod@codec`]: how gradients become numbers that travel, and back;
//! - [`mod@library`]: which MPI library is loaded, whether it is of the family that the program is for, and whether it takes GPU memory;
//! - [`mod@known_answer`]: a probe of this MPI at the start; [`mod@launcher`]: how the ranks were started, and whether MPI agrees with it;
//! - [`mod@die`]: how every failure ends.
//!
//! Not here: what is reduced and when (gradients, statistics), which is the business of `train`.

pub mod codec;
pub mod die;
pub mod error;
pub mod known_answer;
pub mod launcher;
pub mod library;
mod sys;
pub mod thread;
mod turns;
pub mod world;

pub use die::{die, explain_faults, install_panic_hook, rank_prefix};
pub use error::{Error, ThreadLevel};
pub use launcher::{Verdict, check_launch, launcher};
pub use thread::{Comm, Pending, Progress};
pub use world::{Traffic, World, WorldInfo};

/// Name and version of the MPI library, which need not be initialised.
pub fn library_version() -> String {
    sys::library_version()
}

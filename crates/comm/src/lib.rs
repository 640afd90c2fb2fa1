//! Communication between ranks: the only part of trireme that names MPI.
//!
//! One thread owns MPI ([`thread`]); through a [`Comm`] others do operations in their turn, or send the owner work and wait for the
//! [`Pending`] answer. The one exception to the order is [`die()`], which may abort from any thread.
//!
//! - `sys`: the raw calls, each checked; [`mod@world`]: the typed collectives on top; `values`: values of any type, rarely;
//! - [`mod@codec`]: how gradients become numbers that travel, and back;
//! - [`mod@aware`]: whether the MPI library claims to take GPU memory;
//! - [`mod@known_answer`]: a probe of this MPI at the start; [`mod@launcher`], [`mod@slurm`], `check_launch`: how the ranks were
//!   started, and whether MPI agrees with it; `check_family`: whether library and mpirun are of the kind that the program is for;
//! - [`mod@die`]: how every failure ends.
//!
//! Not here: what is reduced and when (gradients, statistics), which is the business of `train`.

pub mod aware;
mod check_family;
mod check_launch;
pub mod codec;
pub mod die;
pub mod error;
mod family;
pub mod known_answer;
pub mod launcher;
mod operation;
pub mod slurm;
mod state;
mod sys;
pub mod thread;
mod thread_level;
mod turns;
mod values;
mod verdict;
pub mod world;

pub use check_launch::check_launch;
pub use die::{die, explain_faults, install_panic_hook, rank_prefix};
pub use error::Error;
pub use launcher::launcher;
pub use thread::{Comm, Pending, Progress};
pub use thread_level::ThreadLevel;
pub use verdict::Verdict;
pub use world::{Traffic, World, WorldInfo};

/// Name and version of the MPI library, which need not be initialised.
pub fn library_version() -> String {
    sys::library_version()
}

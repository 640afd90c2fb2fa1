//! Communication between ranks: the only part of trireme that names MPI.
//!
//! One thread owns MPI ([`thread`]); through a [`Comm`] others do operations in their turn, or send the owner work and wait on the
//! [`Pending`] answer. The one exception to the order is [`die()`], which may abort from any thread.
//!
//! - `sys`: the raw calls, each checked; [`mod@world`]: the typed collectives on top;
//! - [`mod@codec`]: how gradients become numbers that travel, and back;
//! - [`mod@aware`]: what the MPI library says of device memory;
//! - [`mod@known_answer`]: a probe of this MPI at the start; [`mod@launcher`], [`mod@slurm`]: how the ranks were started, and
//!   whether MPI agrees with it;
//! - [`mod@die`]: how every failure ends.
//!
//! Not here: what is reduced and when (gradients, statistics), which is the training loop's business.

pub mod aware;
pub mod codec;
pub mod die;
pub mod error;
pub mod known_answer;
pub mod launcher;
pub mod slurm;
mod sys;
pub mod thread;
pub mod world;

pub use die::{die, install_panic_hook, rank_prefix};
pub use error::Error;
pub use launcher::launcher;
pub use sys::ThreadLevel;
pub use thread::{Comm, Pending, Progress};
pub use world::{Traffic, World, WorldInfo};

/// Outcome of a check of the way the ranks were started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to say.
    Ok,
    /// Worth a line on rank 0's terminal; the run may go on.
    Warning(String),
    /// The run would compute something else than the user asked for; it must end. The text holds the cure.
    Fatal(String),
}

/// Checks the launch: both the launcher's own variables and Slurm's against the number of ranks that MPI sees.
///
/// `size` is [`WorldInfo::size`]. Reads the environment as it was when [`Comm::launch`] was called, since MPI libraries
/// change it. The first fatal verdict wins, then the first warning.
pub fn check_launch(size: usize) -> Verdict {
    let lookup = |name: &str| launcher::variable(name);
    let verdicts = [launcher::check(lookup, size), slurm::check(lookup, size)];
    let fatal = |v: &&Verdict| matches!(v, Verdict::Fatal(_));
    let warning = |v: &&Verdict| matches!(v, Verdict::Warning(_));
    let worst = verdicts.iter().find(fatal).or(verdicts.iter().find(warning));
    worst.cloned().unwrap_or(Verdict::Ok)
}

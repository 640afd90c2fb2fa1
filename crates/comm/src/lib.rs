//! Communication between ranks. This is the only crate that uses MPI.
//!
//! One thread owns MPI ([`thread`]). Other threads use a [`Comm`]: they run operations themselves in a fixed order, or
//! queue work for the owner and wait for the [`Pending`] answer. The one exception to the order is [`die()`], which may
//! abort from any thread.
//!
//! - `sys`: the raw MPI calls with checked return codes
//! - [`mod@world`]: the typed collectives. [`Comm`] also sends values of any type as JSON
//! - [`mod@codec`]: encoding of gradients for the sum over all ranks
//! - [`mod@library`]: which MPI library is loaded, whether it belongs to the family that the program was built for, and
//!   whether it accepts GPU memory
//! - [`mod@known_answer`]: a test of the MPI library at the start of a run
//! - [`mod@launcher`]: how the ranks were started, and whether MPI sees the same ranks
//! - [`mod@network`]: finds connections and networks of this node that do not work, for error messages
//! - [`mod@die`]: how a failure ends all ranks
//!
//! The training loop (`train`) decides what is reduced and when.

pub mod codec;
pub mod die;
pub mod error;
pub mod known_answer;
pub mod launcher;
pub mod library;
pub mod network;
mod sys;
pub mod thread;
mod turns;
pub mod world;

pub use die::{die, explain_faults, install_panic_hook, rank_prefix};
pub use error::{Error, ThreadLevel};
pub use launcher::{Verdict, check_launch, launcher};
pub use thread::{Comm, Pending, Progress};
pub use world::{Traffic, World, WorldInfo};

/// Returns the name and version of the MPI library. MPI need not be initialised.
pub fn library_version() -> String {
    sys::library_version()
}

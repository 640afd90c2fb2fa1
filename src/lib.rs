//! The program: command line, launch, training loop, evaluation, benchmarks, sweep. docs/internals.md has the map of all crates.

pub mod bench;
pub mod cli;
pub mod device;
pub mod doctor;
mod error;
pub mod eval;
pub mod launch;
pub mod libraries;
pub mod signals;
mod sweep;
pub mod train;

pub use error::Error;

//! The program as a library: command line, sweeps, and a list of the C libraries. docs/internals.md has a map of all
//! crates.

pub mod cli;
pub mod libraries;
mod sweep;

//! The library of the program: command line, sweeps, and the list of C libraries. docs/internals.md has a map of all
//! crates.

pub mod cli;
pub mod libraries;
mod sweep;

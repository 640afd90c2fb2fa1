//! The program: its command line, sweeps, and the list of its libraries. docs/internals.md has the map of all crates.

pub mod cli;
pub mod libraries;
mod sweep;

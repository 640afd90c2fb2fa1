//! `trireme doctor`: what this machine and this MPI can do.

use super::exit::Failure;
use super::output::print;
use crate::train::doctor;

/// Arguments of `trireme doctor`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme doctor
  mpirun -n 2 trireme doctor")]
pub struct Args {}

/// Prints the report on rank 0; problems make it fail.
pub fn run(_: &Args) -> Result<(), Failure> {
    let Some(report) = doctor::examine()? else { return Ok(()) };
    print(&report.text)?;
    match report.problems {
        0 => Ok(()),
        n => Err(Failure::failed(format!("{n} problem(s) found, see above"))),
    }
}

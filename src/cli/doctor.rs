//! `trireme doctor`: its arguments.

/// Arguments of `trireme doctor`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme doctor
  mpirun -n 2 trireme doctor")]
pub struct Args {}

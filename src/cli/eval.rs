//! `trireme eval`: its arguments.

use super::value::positive;
use std::path::PathBuf;

/// Arguments of `trireme eval`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme eval runs/r20/model.h5 --data data/cifar10
  mpirun -n 4 trireme eval runs/r20/model.h5 --data data/cifar10 --split train --json

The score does not depend on the number of ranks.")]
pub struct Args {
    /// Model file that `trireme train` wrote
    pub model: PathBuf,
    /// Data set
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Split to score [default: test, else validation]
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// Images a batch, on each rank
    #[arg(long, value_name = "N", default_value = "128", value_parser = positive)]
    pub batch: usize,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
    /// Compute threads a rank [default: by the rank's cores]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
}

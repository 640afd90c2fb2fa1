//! `trireme rewrite-model`: a process of its own that reads a model file by libhdf5, for `predict`, `eval` and `export`. Not in the help.

use super::exit::Failure;
use crate::eval::foreign;
use std::path::PathBuf;

/// Arguments of `trireme rewrite-model`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme rewrite-model model.h5")]
pub struct Args {
    /// Model file that another program made
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
}

/// Writes the model to standard output, which must be a file.
pub fn run(args: &Args) -> Result<(), Failure> {
    foreign::serve(&args.model).map_err(Failure::failed)
}

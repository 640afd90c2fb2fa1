//! `trireme rewrite-model`: a process of its own that reads a file by libhdf5, for the commands that read models and weights. Not in the
//! help.

use std::path::PathBuf;

use training::eval::model;

use super::exit::Failure;

/// Arguments of `trireme rewrite-model`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme rewrite-model model.h5")]
pub struct Args {
    /// The weights in a file of Keras are wanted, not a model
    #[arg(long)]
    pub weights: bool,
    /// File that another program made
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
}

/// Writes the model to standard output, which must be a file.
pub fn run(args: &Args) -> Result<(), Failure> {
    model::serve(&args.model, args.weights).map_err(Failure::failed)
}

//! `trireme predict`: its arguments.

use super::value::positive;
use std::path::PathBuf;

/// Arguments of `trireme predict`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme predict runs/r20/model.h5 cat.jpg dog.png --top 3
  trireme predict runs/r20/model.h5 cat.jpg --json")]
pub struct Args {
    /// Model file that `trireme train` wrote
    pub model: PathBuf,
    /// Image files, PNG or JPEG
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// Classes to name for each image, the likeliest first
    #[arg(long, value_name = "K", default_value = "5", value_parser = positive)]
    pub top: usize,
    /// Print one JSON object per image to stdout
    #[arg(long)]
    pub json: bool,
}

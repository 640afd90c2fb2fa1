//! `trireme export`: a model as a file of another program.

use std::path::PathBuf;

use base::screen;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use formats::interop::export::{Format, Settings};
use training::eval::export::export;
use training::eval::request::ModelRequest;

use super::exit::Failure;
use super::output::print;

/// Arguments of `trireme export`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme export runs/r20/model.h5 --to onnx -o r20.onnx
  trireme export runs/r20 --to safetensors -o r20.safetensors --fold-batch-norm
  trireme export runs/r20 --to keras -o r20.keras --half

With --to safetensors a Python file is written beside, as r20.py: it builds the same torch.nn.Module, from torch alone, and loads the
weights. Inputs are normalised images; ONNX and PyTorch give scores before softmax, Keras gives probabilities.")]
pub struct Args {
    /// Model file that `trireme train` wrote, or the output folder of a run
    #[arg(value_name = "MODEL|RUN")]
    pub model: PathBuf,
    /// Format
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Target,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    /// Of a run, export its best checkpoint, by `checkpoint.best_by` of the recipe
    #[arg(long)]
    pub best: bool,
    /// Export the moving averages of the weights (of a recipe with ema.decay)
    #[arg(long)]
    pub ema: bool,
    /// Store weights in 16 bits; what computes with them still has 32
    #[arg(long)]
    pub half: bool,
    /// Make batch norms part of the convolutions before them: fewer layers for prediction, not for training
    #[arg(long)]
    pub fold_batch_norm: bool,
    /// With --to onnx: take bytes of pixels (N, H, W, C), and normalise them in the graph
    #[arg(long)]
    pub preprocess: bool,
    /// Refuse a model file that another program wrote into
    #[arg(long)]
    pub sealed: bool,
}

/// The value of `--to`.
#[derive(Clone, Copy, Debug)]
pub struct Target(Format);

impl ValueEnum for Target {
    fn value_variants<'a>() -> &'a [Self] {
        const { &[Target(Format::Onnx), Target(Format::Safetensors), Target(Format::Keras)] }
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.about()))
    }
}

/// Exports, and prints the files that were written.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.preprocess && args.to.0 != Format::Onnx {
        return Err(Failure::usage(
            "--preprocess: only ONNX holds transforms of images; leave it out, or take --to onnx",
        ));
    }
    let request = ModelRequest { file: args.model.clone(), best: args.best, ema: args.ema, sealed: args.sealed };
    let settings = Settings {
        format: args.to.0,
        half: args.half,
        fold: args.fold_batch_norm,
        preprocess: args.preprocess,
        force: args.force,
    };
    let exported = export(&request, &args.out, &settings)?;
    exported.notes.iter().for_each(|note| screen::say(note));
    exported.files.iter().try_for_each(|file| print(file.display()))
}

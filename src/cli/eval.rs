//! `trireme eval`: scores a model on a split.

use super::exit::Failure;
use super::output::print;
use super::threads;
use super::value::positive;
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::eval::recorded;
use crate::eval::request::{EvalRequest, ModelRequest};
use crate::eval::score::Scored;
use crate::launch;
use std::path::{Path, PathBuf};

/// Arguments of `trireme eval`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme eval runs/r20/model.h5 --data data/cifar10
  mpirun -n 4 trireme eval runs/r20/model.h5 --data data/cifar10 --split train --json
  trireme eval runs/r20
  trireme eval runs/r20 --data data/cifar10 --follow

The score does not depend on the number of ranks.")]
pub struct Args {
    /// Model file that `trireme train` wrote, or the output folder of a run
    #[arg(value_name = "MODEL|RUN")]
    pub model: PathBuf,
    /// Data set [default: the one of the model's recipe]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Split to score [default: test, else validation]
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// Where the data set's classes are not the model's, match them by name; images of other classes are left out
    #[arg(long)]
    pub map_classes: bool,
    /// Score the moving averages of the weights (of a recipe with ema.decay)
    #[arg(long)]
    pub ema: bool,
    /// Refuse a model file that another program wrote into
    #[arg(long)]
    pub sealed: bool,
    /// Images a batch, on each rank
    #[arg(long, value_name = "N", default_value = "128", value_parser = positive)]
    pub batch: usize,
    /// Score each checkpoint of a run as it appears, then its model.h5, and add the scores to RUN/metrics-eval.jsonl; Ctrl-C ends it
    #[arg(long)]
    pub follow: bool,
    /// Of a run, score the newest file there is, and end
    #[arg(long, requires = "follow")]
    pub once: bool,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
    /// Where to compute
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// Let several ranks compute on one GPU
    #[arg(long)]
    pub share_gpu: bool,
    /// Compute threads a rank [default: by the rank's cores; 1 with a GPU]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
    /// Loader threads a rank [default: by the cores that compute leaves]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub loader_threads: Option<usize>,
    /// How records are read: auto, mmap or read
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub io: loaders::Io,
    /// Copy the split to this folder on each node's own disk first, as "$TMPDIR"; a copy that is there is used again
    #[arg(long, value_name = "DIR")]
    pub stage: Option<PathBuf>,
}

/// Scores, and prints on rank 0.
pub fn run(args: &Args) -> Result<(), Failure> {
    threads::calm_waiting()?;
    loaders::sigbus::install().map_err(Failure::failed)?;
    let request = EvalRequest {
        file: args.model.clone(),
        ema: args.ema,
        sealed: args.sealed,
        map_classes: args.map_classes,
        data: data(args)?,
        recorded: args.data.is_none(),
        split: args.split.clone(),
        batch: args.batch,
        device: args.device,
        share_gpu: args.share_gpu,
        threads: args.threads,
        loader_threads: args.loader_threads,
        io: args.io,
        stage: args.stage.clone(),
    };
    if args.follow {
        let show = |file: &Path, scored: &Scored| show(args, file, scored).map_err(|e| Error::Failed(e.message));
        return Ok(launch::follow(&request, args.once, show)?);
    }
    let scored = launch::score(&request)?;
    if scored.root { show(args, &args.model, &scored) } else { Ok(()) }
}

/// The data set: the one that was given, else that of the recipe.
fn data(args: &Args) -> Result<PathBuf, Failure> {
    let request = ModelRequest { file: args.model.clone(), ema: false, sealed: args.sealed };
    args.data.clone().map_or_else(|| Ok(recorded::data(&request)?), Ok)
}

/// Prints a score.
fn show(args: &Args, model: &Path, scored: &Scored) -> Result<(), Failure> {
    let Scored { score, split, network, epoch, step, .. } = scored;
    if args.json {
        let model = model.to_string_lossy();
        return print(serde_json::json!({
            "model": model, "network": network, "ema": args.ema, "split": split, "step": step, "epoch": epoch, "top1": score.top1,
            "top5": score.top5, "loss": score.loss, "count": score.count,
        }));
    }
    let percent = |share: f64| 100.0 * share;
    let which = if args.follow { format!("step {step}: ") } else { String::new() };
    print(format!(
        "{which}{network} on {split}: top-1 {:.2} %, top-5 {:.2} %, loss {:.4}, {} images",
        percent(score.top1),
        percent(score.top5),
        score.loss,
        score.count
    ))
}

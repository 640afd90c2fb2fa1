//! `trireme eval`: evaluates a model on a split.

use std::path::{Path, PathBuf};

use base::screen;
use loaders::overwrite::Content;
use training::eval::request::{EvalRequest, ModelRequest};
use training::eval::score::SplitScore;
use training::eval::{findings, follow};
use training::train::evaluate::EvaluationResult;
use training::train::observe::notices::lost_score;
use training::{Error, launch};

use super::output::{Failure, print};
use super::set_wait_policy;
use super::value::{DeviceName, Stall, Views, positive, thread_count};

/// Default of `--top`. The score without per-image details is for the same number of classes.
const TOP: usize = 5;

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme eval runs/r20/model.h5 --data data/cifar10
  mpirun -n 4 trireme eval runs/r20/model.h5 --data data/cifar10 \\
      --split train --json
  trireme eval runs/r20
  trireme eval runs/r20 --best
  trireme eval runs/r20 --csv predictions.csv --errors mistakes.png
  trireme eval runs/r20 --data data/cifar10 --follow

No score depends on the number of ranks."
)]
pub struct Args {
    /// Model file written by `trireme train`, or the output folder of a run. In a folder, model.h5 is used if it
    /// exists, otherwise the newest checkpoint
    #[arg(value_name = "MODEL|RUN")]
    pub model: PathBuf,
    /// Data set [default: the data set in the model's recipe]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Split to evaluate [default: test, otherwise validation]
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// If the data set and the model have different classes, match them by name. Images of other classes are skipped
    #[arg(long)]
    pub map_classes: bool,
    /// Use the best checkpoint of a run, selected by `checkpoint.best_by` of the recipe
    #[arg(long, conflicts_with = "follow")]
    pub best: bool,
    /// Use the averaged weights (if the recipe has ema.decay or ema.swa_start)
    #[arg(long)]
    pub ema: bool,
    #[command(flatten)]
    pub views: Views,
    /// Reject a model file that another program has written to
    #[arg(long)]
    pub sealed: bool,
    /// Images per batch on each rank
    #[arg(long, value_name = "N", default_value = "128", value_parser = positive)]
    pub batch: usize,
    /// Evaluate each checkpoint of a run when it appears, then model.h5. Adds the scores to RUN/metrics-eval.jsonl.
    /// Ctrl-C ends it
    #[arg(long)]
    pub follow: bool,
    /// Evaluate only the newest file of a run, then exit
    #[arg(long, requires = "follow")]
    pub once: bool,
    /// Also print the share of images whose class is among the K most probable [default: 5]. Only for models with one
    /// label per image
    #[arg(long, value_name = "K", value_parser = positive, conflicts_with = "follow")]
    pub top: Option<usize>,
    /// Print one JSON object to stdout, with the scores of each class and the confusion matrix
    #[arg(long)]
    pub json: bool,
    /// Write a table with one line per image: its class and the predicted class
    #[arg(long, value_name = "FILE.csv", conflicts_with = "follow")]
    pub csv: Option<PathBuf>,
    /// Draw the worst mistakes with their predicted classes, as a PNG or JPEG file
    #[arg(long, value_name = "FILE.png", conflicts_with = "follow")]
    pub errors: Option<PathBuf>,
    /// Device to compute on
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceName,
    /// Allow ranks to share a GPU
    #[arg(long)]
    pub share_gpu: bool,
    /// Compute threads per rank [default: from the rank's cores; 1 with a GPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
    /// Loader threads per rank [default: from the cores without compute threads]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub loader_threads: Option<usize>,
    /// How records are read: auto, mmap or read
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub io: loaders::Io,
    /// Copy the split to this folder first. It should be on each node's local disk, such as "$TMPDIR". An existing copy
    /// is used again
    #[arg(long, value_name = "DIR")]
    pub stage: Option<PathBuf>,
    #[command(flatten)]
    pub stall: Stall,
}

/// Evaluates the model and prints the scores on rank 0.
pub fn run(args: &Args) -> Result<(), Failure> {
    set_wait_policy()?;
    loaders::sigbus::install().map_err(Failure::failed)?;
    let request = EvalRequest {
        model: model_request(args, args.ema),
        map_classes: args.map_classes,
        test_time: args.views.test_time(),
        data: match &args.data {
            // waits until the run has written a model or its recipe
            None if args.follow && !args.once => Some(follow::awaited_data(&model_request(args, false))?),
            given => given.clone(),
        },
        recorded: args.data.is_none(),
        split: args.split.clone(),
        batch: args.batch,
        device: args.device.0,
        share_gpu: args.share_gpu,
        threads: args.threads,
        loader_threads: args.loader_threads,
        io: args.io,
        stage: args.stage.clone(),
        top: args.top,
        stall: args.stall.limits(),
        outputs: outputs(args),
        sheet: args.errors.clone(),
    };
    if args.follow {
        let show = |file: &Path, scored: &SplitScore| {
            show(args, file, scored).and_then(|()| finite(file, scored)).map_err(|e| Error::Failed(e.message))
        };
        return Ok(launch::follow(&request, args.once, show)?);
    }
    let scored = launch::score(&request)?;
    if scored.root { finish(args, &scored) } else { Ok(()) }
}

/// Returns the files to write, with the kind of content that each may overwrite.
fn outputs(args: &Args) -> Vec<(PathBuf, &'static Content)> {
    let named = [(&args.csv, &findings::TABLE), (&args.errors, &data_tools::SHEET)];
    named.into_iter().filter_map(|(path, content)| Some((path.clone()?, content))).collect()
}

/// Prints the scores and writes the requested files.
fn finish(args: &Args, scored: &SplitScore) -> Result<(), Failure> {
    show(args, &args.model, scored)?;
    if let Some(table) = &args.csv {
        findings::csv(scored, table)?;
        screen::say(&format!("predictions: {}", table.display()));
    }
    if let Some(sheet) = &args.errors {
        match findings::write_sheet(scored, sheet)? {
            0 => screen::say(&format!("there are no mistakes, so {} is not written", sheet.display())),
            pictures => screen::say(&format!("the {pictures} worst mistakes: {}", sheet.display())),
        }
    }
    finite(&args.model, scored)
}

/// Returns an error if the loss is not finite. The score has been printed by then.
fn finite(model: &Path, scored: &SplitScore) -> Result<(), Failure> {
    let loss = scored.result.score.loss;
    match loss.is_finite() {
        true => Ok(()),
        false => {
            Err(Failure::failed(format!("{}: {}", model.display(), lost_score("its weights", &scored.split, loss))))
        }
    }
}

fn model_request(args: &Args, ema: bool) -> ModelRequest {
    ModelRequest { file: args.model.clone(), best: args.best, ema, sealed: args.sealed }
}

/// Prints the scores and the requested details.
fn show(args: &Args, model: &Path, scored: &SplitScore) -> Result<(), Failure> {
    let SplitScore { result: EvaluationResult { score, .. }, split, network, epoch, step, .. } = scored;
    if args.json {
        let model = model.to_string_lossy();
        let mut object = serde_json::json!({
            "model": model, "network": network, "ema": args.ema, "split": split, "step": step, "epoch": epoch, "top1": score.top1,
            "top5": score.top5, "loss": score.loss, "count": score.count,
        });
        if let (Some(object), serde_json::Value::Object(more)) =
            (object.as_object_mut(), findings::json(scored, args.top.unwrap_or(TOP)))
        {
            object.extend(more);
        }
        return print(object);
    }
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let which = if args.follow { format!("step {step}: ") } else { String::new() };
    if let Some(means) = &score.numbers {
        let line = format!(
            "{which}{network} on {split}: RMSE {:.6}, MAE {:.6}, R2 {}, loss {:.4}, {} images",
            means.rmse,
            means.mae,
            report::r2_text(means.r2),
            score.loss,
            score.count
        );
        let table = findings::text(scored);
        return print(if args.follow { line } else { format!("{line}\n{table}") });
    }
    let (k, top) = match &scored.result.predictions {
        Some(predictions) => (args.top.unwrap_or(TOP), predictions.top(args.top.unwrap_or(TOP))),
        None => (TOP, score.top5),
    };
    let line = format!(
        "{which}{network} on {split}: top-1 {}, top-{k} {}, loss {:.4}, {} images",
        percent(score.top1),
        percent(top),
        score.loss,
        score.count
    );
    let more = findings::text(scored);
    print(if more.is_empty() { line } else { format!("{line}\n{more}") })
}

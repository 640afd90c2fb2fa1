//! What the page shows of a run, as JSON.

use serde_json::{Value, json};

use super::super::history::{EpochLine, EvalLine, Log, Run, State, StepLine};
use super::layers;
use super::series::thinned;

/// Returns a run, with at most `points` points in each curve.
pub(super) fn of(run: &Run, points: usize, is_default: fn(&str, &str) -> bool) -> Value {
    let Run { log, .. } = run;
    let last = log.starts.last();
    let state = match run.state() {
        State::Done => "done",
        State::Running => "running",
        State::Diverged => "diverged",
        State::Stopped => "stopped",
    };
    json!({
        "name": run.name(),
        "folder": run.folder.display().to_string(),
        "state": state,
        "step": log.step(),
        "last_step": run.last_step(),
        "steps_per_epoch": last.map(|start| start.steps_per_epoch),
        "epochs": last.map(|start| start.epochs),
        "model": last.map(|start| start.model.clone()),
        "parameters": last.map(|start| start.parameters),
        "images": last.map(|start| start.images),
        "batch": last.map(|start| start.batch),
        "workers": last.map(|start| start.workers),
        "ranks": last.map(|start| start.ranks),
        "resumed": log.starts.iter().skip(1).map(|start| start.step).collect::<Vec<_>>(),
        "facts": last.map(|start| &start.facts),
        "begun": log.starts.first().and_then(|start| start.utc.clone()),
        "recipe": run.recipe,
        "defaults": run.recipe.iter().filter(|(key, value)| is_default(key, value)).map(|(key, _)| key).collect::<Vec<_>>(),
        "curves": curves(&log.steps, points),
        "epoch_means": epochs(&log.epochs),
        "evals": evals(log.evals.iter().chain(&log.averages)),
        "at_end": evals(log.at_end.iter()),
        "time": time(log),
        "img_per_s": rate(log),
        "end": log.end.as_ref().map(|end| json!({
            "seconds": end.seconds, "img_per_s": end.img_per_s, "digest": end.digest, "ended": end.ended,
            "seconds_to_target": end.seconds_to_target,
        })),
        "seconds_of_steps": log.seconds_of_steps(),
        "layers": layers::of(log),
        "evaluation": run.evaluation,
        "unusable": run.unusable,
        "unread": { "lines": log.unread.lines, "first": log.unread.first },
    })
}

fn curves(steps: &[StepLine], points: usize) -> Value {
    let curve = |value: fn(&StepLine) -> f64| thinned(steps.iter().map(|step| (step.step, value(step))), points);
    json!({
        "loss": curve(|step| step.loss),
        "top1": curve(|step| step.top1),
        "lr": curve(|step| step.lr),
        "img_per_s": curve(|step| step.img_per_s),
        "data_wait_ms": curve(|step| step.data_wait_ms),
        "comm_wait_ms": curve(|step| step.comm_wait_ms),
        "grad_norm": curve(|step| step.grad_norm),
    })
}

fn epochs(epochs: &[EpochLine]) -> Value {
    let row = |epoch: &EpochLine| {
        json!({ "step": epoch.step, "epoch": epoch.epoch, "loss": epoch.loss, "top1": epoch.top1,
                "img_per_s": epoch.img_per_s, "seconds": epoch.seconds })
    };
    epochs.iter().map(row).collect()
}

fn evals<'a>(all: impl Iterator<Item = &'a EvalLine>) -> Value {
    let row = |eval: &EvalLine| {
        json!({ "step": eval.step, "epoch": eval.epoch, "split": eval.split, "top1": eval.top1, "top5": eval.top5,
                "loss": eval.loss, "count": eval.count, "ema": eval.ema, "best": eval.best, "macro_f1": eval.macro_f1,
                "map": eval.map, "micro_f1": eval.micro_f1 })
    };
    all.map(row).collect()
}

/// Images a second, the mean of the run: that of the last start or, if it is not over or had no step left, of the steps in the log.
fn rate(log: &Log) -> Option<f64> {
    let told = log.end.as_ref().map(|end| end.img_per_s).filter(|rate| *rate > 0.0);
    let batch = log.starts.last().map(|start| start.batch as f64);
    told.or_else(|| Some(1e3 * batch? / time(log)["step_ms"].as_f64()?))
}

/// Means over all steps but the first, which prepares much: where the time of a step goes, and what differs between ranks.
fn time(log: &Log) -> Value {
    let steps = log.steps.get(1..).unwrap_or_default();
    let mean = |value: &dyn Fn(&StepLine) -> f64| {
        let known: Vec<f64> = steps.iter().map(value).filter(|value| value.is_finite()).collect();
        known.iter().sum::<f64>() / known.len() as f64
    };
    let ranks = |value: fn(&StepLine) -> [f64; 3]| [0, 1, 2].map(|k| mean(&move |step| value(step)[k]));
    let loader = |key: &str| {
        let known: Vec<f64> = log.epochs.iter().filter_map(|epoch| *epoch.loader.get(key)?).collect();
        known.iter().sum::<f64>() / known.len() as f64
    };
    json!({
        "step_ms": mean(&|step| step.step_ms),
        "data_wait_ms": mean(&|step| step.data_wait_ms),
        "comm_wait_ms": mean(&|step| step.comm_wait_ms),
        "step_ranks": ranks(|step| step.step_ranks),
        "data_wait_ranks": ranks(|step| step.data_wait_ranks),
        "comm_wait_ranks": ranks(|step| step.comm_wait_ranks),
        "loader": { "read_us": loader("read_us"), "decode_us": loader("decode_us"), "transform_us": loader("transform_us"),
                    "slot_wait_us": loader("slot_wait_us") },
        "exchange": log.exchange.as_ref().map(|exchange| json!({
            "codec": exchange.codec, "encode_ms": exchange.encode_ms, "wire_ms": exchange.wire_ms,
            "decode_ms": exchange.decode_ms,
        })),
    })
}

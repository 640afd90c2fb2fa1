//! The output folder: whether a run may have it, and what it will take there.

use std::path::Path;

use super::resume::{self, Head};
use crate::backend::Backend;
use crate::checkpoint;
use crate::error::Error;
use crate::recipe::Recipe;
use crate::train::agree::preflight::Need;
use crate::train::plan::request::TrainRequest;
use crate::train::plan::run::Run;

/// Bytes that the run will write.
pub fn need<B: Backend>(run: &Run<B>) -> Need {
    let weights = run.graph.layout().chunks.iter().sum::<usize>() as u64 * 4;
    let averages = u64::from(run.ema.is_some());
    let model = weights * (1 + averages) + run.graph.running().len() as u64 * 4;
    let residuals = if run.reduction.settings.error_feedback { run.division.workers } else { 0 };
    let others = run.optimizer.slots().count() + residuals;
    Need { checkpoint: model + weights * others as u64, model, keep: run.recipe.checkpoint.keep as u64 }
}

/// Creates the output folder, proves that it can be written, and leaves the recipe there. It must be new or empty, unless the run
/// resumes in it from the checkpoint `from`, or was requested to resume and there is none.
pub fn claim_output(request: &TrainRequest, from: Option<&Head>, recipe: &Recipe) -> Result<(), Error> {
    let out = &request.out;
    // what a killed run left half-written is hidden, and no obstacle
    let visible = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|e| !e.file_name().to_string_lossy().starts_with('.'))
    };
    let busy = |dir: &Path| std::fs::read_dir(dir).is_ok_and(|mut entries| entries.any(visible));
    let checkpoints = out.join("checkpoints");
    let real = |path: &Path| path.canonicalize().ok();
    let ours = |head: &Head| head.path.parent().and_then(real).is_some_and(|dir| Some(dir) == real(&checkpoints));
    let shown = out.display();
    match from {
        Some(head) if busy(out) && !ours(head) => {
            let file = head.path.display();
            return Err(Error::Usage(format!(
                "{shown} is not empty, and {file} is not one of its checkpoints; choose another --out, or remove it"
            )));
        }
        None if busy(out) && !request.resume => {
            return Err(Error::Usage(format!(
                "{shown} is not empty; choose another --out, or remove it, or go on with --resume auto"
            )));
        }
        None if out.join("model.h5").exists() => {
            return Err(Error::Usage(format!(
                "{shown} holds a model and no checkpoint to go on from; choose another --out, or remove it"
            )));
        }
        _ => {}
    }
    checkpoint::writable(out)?;
    checkpoint::writable(&checkpoints)?;
    checkpoint::write_text(&out.join("recipe.toml"), &recipe.to_toml()?)?;
    from.map_or(Ok(()), |head| resume::rewind(out, head))
}

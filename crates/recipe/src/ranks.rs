//! What a recipe leaves to the run: the number of workers, and what depends on the number of ranks.

use super::check::{batch_holds_workers, codec_holds_workers};
use super::codec::Codec;
use super::error::Error;
use super::recipe::Recipe;
use super::sync::Sync;

impl Recipe {
    /// Settles what the file may leave to the run: `workers`, if absent, becomes `ranks`.
    ///
    /// Refuses more ranks than workers (a rank would idle) and fewer images a batch than workers.
    pub fn resolve(&mut self, ranks: usize) -> Result<(), Error> {
        let workers = *self.workers.get_or_insert(ranks);
        if ranks > workers {
            let why = format!(
                "{ranks} ranks for {workers} workers; start at most {workers} ranks, or set workers to {ranks} or more"
            );
            return refuse("workers", why);
        }
        codec_holds_workers(self.reduce.codec.entry(), workers).or_else(|why| refuse("workers", why))?;
        one_worker_a_rank(self, workers, ranks)?;
        self.mix.check(self.batch, Some(workers)).or_else(|(key, why)| refuse(key, why))?;
        batch_holds_workers(self.batch, workers).or_else(|why| refuse("batch", why))
    }
}

fn refuse(key: &str, why: String) -> Result<(), Error> {
    Err(Error::Value { place: key.into(), why })
}

/// Refuses settings that span the ranks where a rank has several workers.
fn one_worker_a_rank(recipe: &Recipe, workers: usize, ranks: usize) -> Result<(), Error> {
    let cure = format!(
        "needs one worker a rank, got {workers} workers on {ranks} ranks; start {workers} ranks, or leave workers out"
    );
    if recipe.sync_bn && workers != ranks {
        return refuse("sync_bn", format!("batch normalisation over the whole batch {cure}"));
    }
    if recipe.sync == Sync::Allreduce {
        return Ok(());
    }
    if workers != ranks {
        return refuse("sync", format!("\"{}\" {cure}", recipe.sync));
    }
    without_gradients(recipe)?;
    easgd_is_stable(recipe.sync, ranks)
}

/// Refuses settings that have no meaning where ranks exchange parameters now and then instead of gradients in every step.
fn without_gradients(recipe: &Recipe) -> Result<(), Error> {
    let sync = recipe.sync;
    if recipe.sync_bn {
        return refuse(
            "sync_bn",
            format!("synchronises the ranks in every layer, sync = \"{sync}\" only now and then; drop one"),
        );
    }
    if recipe.ema.is_kept() {
        let why = format!(
            "averages one model over time, and with sync = \"{sync}\" each rank has a model of its own; drop one"
        );
        return refuse(if recipe.ema.swa_start.is_some() { "ema.swa_start" } else { "ema.decay" }, why);
    }
    if recipe.reduce.codec != Codec::default() {
        let why =
            format!("\"{}\" is for gradients, and sync = \"{sync}\" sends none; drop one", recipe.reduce.codec.name);
        return refuse("reduce.codec", why);
    }
    Ok(())
}

/// Refuses an alpha that moves the centre beyond the mean of the ranks.
fn easgd_is_stable(sync: Sync, ranks: usize) -> Result<(), Error> {
    match sync {
        Sync::Easgd { alpha, .. } if alpha * ranks as f64 > 1.0 => {
            let most = 1.0 / ranks as f64;
            let why = format!(
                "alpha = {alpha} on {ranks} ranks moves the centre beyond their mean; expected at most 1 / ranks = {most:.4}"
            );
            refuse("sync", why)
        }
        _ => Ok(()),
    }
}

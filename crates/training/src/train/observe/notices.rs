//! Messages during a run: skipped records and steps, notes from the device, and the error if a loss, gradient or
//! parameter is no longer finite.

use std::fmt::Display;

use crate::error::Error;
use backend::{LossScale, Precision};
use comm::{Comm, WorldInfo};

/// A rank prints at most this many lines about records, and as many about steps.
const LINES: usize = 10;

/// A rank's lines about skipped records and steps.
#[derive(Debug, Default)]
pub struct Notices {
    lines: Vec<String>,
    records: usize,
    steps: usize,
}

impl Notices {
    /// Adds the bad records in a batch of this rank.
    pub fn records(&mut self, faults: &[loaders::Error], world: &WorldInfo) {
        for fault in faults.iter().take(LINES.saturating_sub(self.records)) {
            let who = world.who();
            self.lines.push(format!("{who}skipped: {fault}"));
            self.records += 1;
            if self.records == LINES {
                self.lines.push(format!(
                    "{who}further skipped records are counted, but not listed; `trireme data verify` lists all bad records"
                ));
            }
        }
    }

    /// Adds a step that was skipped because the loss scale was too large. `scale` is the new scale.
    pub fn step(&mut self, step: u64, scale: &LossScale) {
        self.steps += 1;
        if self.steps <= LINES {
            let last = if self.steps == LINES {
                ". Further skipped steps are not printed, but counted as lost_steps in metrics.jsonl"
            } else {
                ""
            };
            self.lines.push(format!(
                "step {step} skipped: a gradient was Inf or NaN in f16; the loss scale is now {}{last}",
                scale.scale
            ));
        }
    }

    /// Adds notes from this rank's device.
    pub fn device(&mut self, notes: Vec<String>, world: &WorldInfo) {
        let who = world.who();
        self.lines.extend(notes.into_iter().map(|note| format!("{who}{note}")));
    }

    /// Returns the lines that were added since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

// Errors for values that are no longer finite. Rank 0 reports the error once and names the ranks that it comes from.

/// Returns the error for step `done + 1`: its loss is not finite, or a parameter or running statistic is not finite after the step. All
/// ranks have seen the same sums and call this together. `own` is this rank's part of the loss.
pub fn not_finite(comm: &Comm, precision: Precision, done: u64, lr: f64, own: f64) -> Error {
    match origin(comm, own) {
        Ok(Some(origin)) => {
            let in_loss = origin != ALL_FINITE;
            Error::NotFinite { step: done + 1, in_loss, origin, lr, f16: precision == Precision::F16 }
        }
        Ok(None) => Error::OtherRank { code: 1 },
        Err(error) => error.into(),
    }
}

/// Returns the error for a gradient that an integer codec cannot represent. All ranks found it in the same bucket and
/// call this together.
pub fn in_codec(comm: &Comm, error: &impl Display, own: f64) -> Error {
    match origin(comm, own) {
        Ok(Some(origin)) => Error::Diverged { text: format!("{error} ({origin})") },
        Ok(None) => Error::OtherRank { code: 1 },
        Err(error) => error.into(),
    }
}

/// Returns an error if the loss scale for f16 has reached its minimum. Ranks that step together have the same scale and
/// call this together. With local SGD (`alone`) each rank reports its own.
pub fn underflow(world: &WorldInfo, scale: &LossScale, alone: bool) -> Option<Error> {
    let LossScale { scale, bad, .. } = *scale;
    if scale >= LossScale::LEAST {
        return None;
    }
    let text = format!(
        "{bad} steps in a row were skipped because gradients had Inf or NaN, although the loss scale was halved each time, down to \
         {scale:e}. So the values themselves are not finite in f16. The last good checkpoint is kept, if there is one. Try precision = \
         \"bf16\", a smaller schedule.base_lr, or check the data with `trireme data stats`"
    );
    Some(match (alone, world.rank) {
        (true, _) => Error::Failed(text),
        (false, 0) => Error::Diverged { text },
        (false, _) => Error::OtherRank { code: 1 },
    })
}

/// Returns the error for a score that is useless although the weights are finite. All ranks have the same score and call this together.
/// `whose` names the weights that were scored.
pub fn scored(world: &WorldInfo, whose: &str, split: &str, step: u64, loss: f64) -> Error {
    match world.rank {
        0 => Error::Diverged {
            text: format!("training has diverged: after step {step} {}", lost_score(whose, split, loss)),
        },
        _ => Error::OtherRank { code: 1 },
    }
}

/// Formats the message for a loss of diverged weights, with advice.
pub fn lost_score(whose: &str, split: &str, loss: f64) -> String {
    let outputs = if loss.is_finite() { "far beyond those of a trained network" } else { "no longer finite" };
    format!(
        "{whose} have a loss of {loss:e} on split {split}: the outputs of the network are {outputs}. Try a smaller schedule.base_lr, \
         a longer schedule.warmup_epochs, or optimizer.clip_norm"
    )
}

/// The text for the case that a parameter or statistic is not finite although all losses are finite.
const ALL_FINITE: &str = "all losses are finite";

/// Gathers whether the losses are finite. On rank 0, returns the ranks whose loss is not finite, or [`ALL_FINITE`].
fn origin(comm: &Comm, own: f64) -> Result<Option<String>, comm::Error> {
    let all = comm.gather("search for losses that are not finite", &own.is_finite())?;
    Ok(all.map(|finite| name(&finite)))
}

/// Maximum number of ranks in a message.
const MOST: usize = 8;

fn name(finite: &[bool]) -> String {
    let ranks: Vec<String> = (0..finite.len()).filter(|&rank| !finite[rank]).map(|rank| rank.to_string()).collect();
    match ranks.as_slice() {
        [] => ALL_FINITE.into(),
        all if all.len() == finite.len() => "the NaN or infinity comes from every rank".into(),
        [rank] => format!("the NaN or infinity comes from rank {rank}"),
        ranks if ranks.len() <= MOST => format!("the NaN or infinity comes from ranks {}", ranks.join(", ")),
        ranks => {
            let (named, more) = (ranks[..MOST].join(", "), ranks.len() - MOST);
            format!("the NaN or infinity comes from ranks {named} and {more} more")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use comm::ThreadLevel;
    use support::mentions;

    fn world(rank: usize, size: usize) -> WorldInfo {
        let (host, library) = (String::new(), String::new());
        WorldInfo { rank, size, node_rank: rank, node_size: size, host, thread_level: ThreadLevel::Multiple, library }
    }

    #[test]
    fn the_first_are_named_and_the_rest_counted() {
        let mut notices = Notices::default();
        let fault = || loaders::Error::NoSample { split: "train".into(), id: 3, len: 2 };
        notices.records(&[fault()], &world(1, 4));
        let line = notices.take().remove(0);
        assert!(line.starts_with("rank 1: ") && line.ends_with(&fault().to_string()), "{line}");
        (0..30).for_each(|_| notices.records(&[fault(), fault()], &world(0, 1)));
        let lines = notices.take();
        assert_eq!(lines.len(), LINES);
        mentions(&lines[LINES - 1], &["further", "`trireme data verify`"]);
        notices.records(&[fault()], &world(0, 1));
        assert!(notices.take().is_empty());
        notices.device(vec!["note: slow".into()], &world(1, 4));
        notices.device(vec!["note: slow".into()], &world(0, 1));
        assert_eq!(notices.take(), ["rank 1: note: slow", "note: slow"]);
        (1..=20).for_each(|step| notices.step(step, &LossScale { scale: 0.5, ..LossScale::default() }));
        let lines = notices.take();
        assert!(lines[0].starts_with("step 1 ") && lines[0].ends_with(" 0.5"), "{lines:?}");
        assert!(lines.len() == LINES && lines[LINES - 1].contains("lost_steps"), "{lines:?}");
    }

    #[test]
    fn the_ranks_it_comes_from_are_named() {
        assert!(name(&[true, false, true]).ends_with(" rank 1"), "{}", name(&[true, false, true]));
        assert!(name(&[false, false, true]).ends_with(" ranks 0, 1"), "{}", name(&[false, false, true]));
        assert_eq!(name(&[true, true]), super::ALL_FINITE);
        for all in [&[false, false][..], &[false]] {
            mentions(name(all), &["every rank"]);
        }
    }
}

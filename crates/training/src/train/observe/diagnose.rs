//! Why a run ends: a loss, a gradient or a parameter that is not finite any more, reported once, by rank 0, with the ranks that it came
//! from.

use std::fmt::Display;

use backend::{LossScale, Precision};
use comm::{Comm, WorldInfo};

use crate::error::Error;

/// The loss of the step after `done`, or a parameter or a running statistic after it, is not finite. All ranks have seen the same sums and
/// call this together; `own` is this rank's part of the loss, `precision` the recipe's.
pub fn not_finite(comm: &Comm, precision: Precision, done: u64, lr: f64, own: f64) -> Error {
    match origin(comm, own) {
        Ok(Some(origin)) => Error::NotFinite { step: done + 1, origin, lr, f16: precision == Precision::F16 },
        Ok(None) => Error::Elsewhere { code: 1 },
        Err(error) => error.into(),
    }
}

/// A gradient that an integer codec cannot carry: all ranks have met it in the same bucket and call this together.
pub fn in_codec(comm: &Comm, error: &impl Display, own: f64) -> Error {
    match origin(comm, own) {
        Ok(Some(origin)) => Error::Diverged { text: format!("{error} ({origin})") },
        Ok(None) => Error::Elsewhere { code: 1 },
        Err(error) => error.into(),
    }
}

/// Under f16, a scale of the losses that was halved in vain; nothing while it helps. Ranks that step together have the same scale and
/// call this together; with local SGD (`alone`) each rank reports its own.
pub fn underflow(world: &WorldInfo, scale: &LossScale, alone: bool) -> Option<Error> {
    let LossScale { scale, bad, .. } = *scale;
    if scale >= LossScale::LEAST {
        return None;
    }
    let error = Error::Underflow { steps: bad, scale };
    Some(match (alone, world.rank) {
        (true, _) => error,
        (false, 0) => Error::Diverged { text: error.to_string() },
        (false, _) => Error::Elsewhere { code: error.code() },
    })
}

/// Returns the error for a score that is useless although the weights are finite. All ranks have the same score and call this together.
/// `whose` names the weights that were scored.
pub fn scored(world: &WorldInfo, whose: &str, split: &str, step: u64, loss: f64) -> Error {
    match world.rank {
        0 => Error::Diverged {
            text: format!("training has diverged: after step {step} {}", lost_score(whose, split, loss)),
        },
        _ => Error::Elsewhere { code: 1 },
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

/// On rank 0, which ranks' own losses are not finite.
fn origin(comm: &Comm, own: f64) -> Result<Option<String>, comm::Error> {
    let all = comm.gather("search for losses that are not finite", &own.is_finite())?;
    Ok(all.map(|finite| name(&finite)))
}

fn name(finite: &[bool]) -> String {
    let ranks: Vec<String> = (0..finite.len()).filter(|&rank| !finite[rank]).map(|rank| rank.to_string()).collect();
    match ranks.as_slice() {
        [] => "all losses are finite, so it is a parameter or a running statistic".into(),
        all if all.len() == finite.len() => "the loss of every rank".into(),
        [rank] => format!("it comes from rank {rank}"),
        ranks => format!("it comes from ranks {}", ranks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn the_ranks_it_comes_from_are_named() {
        assert_eq!(name(&[true, false, true]), "it comes from rank 1");
        assert_eq!(name(&[false, false, true]), "it comes from ranks 0, 1");
        assert_eq!(name(&[true, true]), "all losses are finite, so it is a parameter or a running statistic");
        assert_eq!(name(&[false, false]), "the loss of every rank");
        assert_eq!(name(&[false]), "the loss of every rank");
    }
}

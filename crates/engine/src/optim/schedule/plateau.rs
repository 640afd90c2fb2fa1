//! The plateau schedule, as PyTorch's ReduceLROnPlateau: the rate falls where a score no longer gets better. The one schedule with a
//! memory, which checkpoints keep.

use schema::{Parsed, Range, section};

use super::decay::{AfterWarmup, Decay, rounded};
use crate::optim::score::ScoreName;

section! {
    /// The rate is multiplied by gamma where a score no longer gets better. Scorings in the warm-up do not count.
    pub struct Plateau {
        /// Score that is watched.
        optional score: Parsed<ScoreName> = Parsed::new("loss", ScoreName::LOSS);
        /// Factor.
        optional gamma: f64 = 0.1, in Range::OpenFraction(0.1);
        /// Scorings in a row without a better score that are let pass; the rate falls with the next.
        optional patience: u32 = 10;
        /// A score is better where it differs from the best by more than this part of it.
        optional threshold: f64 = 1e-4, in Range::AtLeast(0.0);
        /// Scorings after a fall that do not count.
        optional cooldown: u32 = 0;
        /// Lowest rate, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
    }
}

/// What the schedule remembers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlateauState {
    /// The best score so far.
    pub best: f64,
    /// Scorings that count since then, or since the rate fell.
    pub since: u32,
    /// How often the rate fell.
    pub drops: u32,
    /// Scorings left that do not count.
    pub cooldown: u32,
}

impl Plateau {
    /// What it remembers after a score; `before`: none before the first.
    pub fn after(&self, before: Option<PlateauState>, score: f64) -> PlateauState {
        let Some(before) = before else { return PlateauState { best: score, since: 0, drops: 0, cooldown: 0 } };
        let PlateauState { best, mut since, mut drops, mut cooldown } = before;
        let better = self.score().value().better(score, best, self.threshold() * best.abs());
        since = if better { 0 } else { since + 1 };
        if cooldown > 0 {
            (cooldown, since) = (cooldown - 1, 0);
        }
        if since > self.patience() {
            (drops, cooldown, since) = (drops + 1, self.cooldown(), 0);
        }
        PlateauState { best: if better { score } else { best }, since, drops, cooldown }
    }
}

impl Decay for Plateau {
    fn rate(&self, at: AfterWarmup) -> f64 {
        (at.target * self.gamma().powi(at.drops as i32)).max((self.end_lr() * at.scale).min(at.target))
    }

    fn describe(&self, scale: f64) -> String {
        let (gamma, score, patience) = (self.gamma(), self.score().value(), self.patience());
        let end = rounded(self.end_lr() * scale);
        format!(", x{gamma} after {} scorings without a better {score}, down to {end}", patience + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Falls of the rate after each score.
    fn drops(plateau: &Plateau, scores: &[f64]) -> Vec<u32> {
        let mut state = None;
        let mut after = |score: &f64| state.insert(plateau.after(state, *score)).drops;
        scores.iter().map(&mut after).collect()
    }

    /// Rates of `torch.optim.lr_scheduler.ReduceLROnPlateau` (2.x) for the same scores, see tests/golden/schedules.py.
    #[test]
    fn falls_by_hand() {
        let plateau = Plateau { patience: Some(1), ..Plateau::default() };
        assert_eq!(drops(&plateau, &[1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8]), [0, 0, 0, 1, 1, 2, 2]);
        // within the threshold of 1e-4 of the best there is nothing better
        assert_eq!(drops(&plateau, &[1.0, 0.99995, 0.99991, 0.9998]), [0, 0, 1, 1]);
        let calm = Plateau { cooldown: Some(2), patience: Some(0), ..plateau.clone() };
        assert_eq!(drops(&calm, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), [0, 1, 1, 1, 2, 2]);
        let shares = Plateau { score: Some(Parsed::new("top1", ScoreName::TOP1)), patience: Some(0), ..plateau };
        assert_eq!(drops(&shares, &[0.5, 0.6, 0.6, f64::NAN, 0.7]), [0, 0, 1, 2, 2]);
    }
}

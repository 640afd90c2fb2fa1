//! Decay of the learning rate after the warm-up: one struct of settings for each kind. Also the rate at which the
//! warm-up starts.

use std::f64::consts::PI;

use base::run_state::PlateauState;
use base::text::plural;
use schema::{KeyType, KeyValue, Parsed, Range, section, words};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::optim::score::ScoreName;

/// An invalid `[schedule]` section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schedule.{key}: {why}")]
pub struct ScheduleError {
    pub key: &'static str,
    /// What was expected, what was found, and what to do.
    pub why: String,
}

#[derive(Clone, Copy, Debug)]
pub struct AfterWarmup {
    /// The step, counted from the start of the run.
    pub step: u64,
    /// Steps since the end of the warm-up. Does not grow after the end of the run.
    pub since: u64,
    /// The fraction of the steps after the warm-up that is finished, from 0 to 1.
    pub part: f64,
    /// Number of steps after the warm-up, at least 1. If the run was extended during this decay, the number before the
    /// extension.
    pub length: u64,
    /// How often the plateau schedule has lowered the rate.
    pub drops: u32,
    pub steps_per_epoch: u64,
    /// Learning rate at the end of the warm-up.
    pub target: f64,
    /// batch / reference_batch. It multiplies `end_lr`.
    pub scale: f64,
}

pub trait Decay {
    /// Returns the learning rate of a step.
    fn rate(&self, at: AfterWarmup) -> f64;

    /// Returns the momentum of a step if the schedule changes the momentum together with the rate.
    fn momentum(&self, _at: AfterWarmup) -> Option<f64> {
        None
    }

    /// Describes the decay in a few words for the log. `scale` multiplies `end_lr`.
    fn describe(&self, scale: f64) -> String;

    /// Returns true if the decay depends on the length of the run.
    fn ends_with_run(&self) -> bool {
        false
    }

    /// Returns an error if the settings are not valid with a warm-up of this many epochs.
    fn check(&self, _warmup_epochs: f64) -> Result<(), ScheduleError> {
        Ok(())
    }
}

section! {
    /// The rate does not change.
    pub struct Constant {}
}

section! {
    /// The rate is multiplied by gamma at each milestone.
    pub struct Step {
        /// Epochs at which the rate is multiplied by gamma, in ascending order. They are counted from 0 and include the warm-up.
        required milestones: Vec<f64>;
        /// Factor by which the rate is multiplied.
        optional gamma: f64 = 0.1, in Range::Positive;
    }
}

section! {
    /// The rate follows half a cosine down to end_lr.
    pub struct Cosine {
        /// Final rate, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
    }
}

section! {
    /// The rate follows (1 - u)^power down to end_lr, with u from 0 to 1. Power 1 is a straight line.
    pub struct Polynomial {
        /// Final rate, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
        /// Exponent of 1 - u.
        optional power: f64 = 1.0, in Range::Positive;
    }
}

section! {
    /// The rate is multiplied by gamma every decay_epochs.
    pub struct Exponential {
        /// Factor by which the rate is multiplied.
        optional gamma: f64 = 0.1, in Range::Positive;
        /// Number of epochs in which the rate falls by the factor gamma.
        optional decay_epochs: f64 = 1.0, in Range::Positive;
        /// Whether the rate falls every decay_epochs instead of smoothly.
        optional staircase: bool = false;
    }
}

impl Decay for Constant {
    fn rate(&self, at: AfterWarmup) -> f64 {
        at.target
    }

    fn describe(&self, _scale: f64) -> String {
        ", then constant".into()
    }
}

impl Decay for Step {
    fn rate(&self, at: AfterWarmup) -> f64 {
        let reached = |epoch: &&f64| at.step >= (**epoch * at.steps_per_epoch as f64).round() as u64;
        let passed = self.milestones.iter().filter(reached).count();
        at.target * self.gamma().powi(passed as i32)
    }

    fn describe(&self, _scale: f64) -> String {
        let at: Vec<String> = self.milestones.iter().map(f64::to_string).collect();
        format!(", x{} at epochs {}", self.gamma(), at.join(", "))
    }

    fn check(&self, warmup_epochs: f64) -> Result<(), ScheduleError> {
        let wrong = |why: String| Err(ScheduleError { key: "milestones", why });
        let first = self.milestones.first().copied().unwrap_or(f64::INFINITY);
        if first < warmup_epochs || first <= 0.0 {
            return wrong(format!(
                "must lie after epoch 0 and after the warm-up ({warmup_epochs} epochs), got {first}"
            ));
        }
        match self.milestones.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => wrong(format!("must ascend, but {} is followed by {}", pair[0], pair[1])),
            None => Ok(()),
        }
    }
}

impl Decay for Cosine {
    fn ends_with_run(&self) -> bool {
        true
    }

    fn rate(&self, at: AfterWarmup) -> f64 {
        let end = self.end_lr() * at.scale;
        end + (at.target - end) * (1.0 + (PI * at.part).cos()) / 2.0
    }

    fn describe(&self, scale: f64) -> String {
        format!(", then cosine to {}", rounded(self.end_lr() * scale))
    }
}

impl Decay for Polynomial {
    fn ends_with_run(&self) -> bool {
        true
    }

    fn rate(&self, at: AfterWarmup) -> f64 {
        let end = self.end_lr() * at.scale;
        end + (at.target - end) * (1.0 - at.part).powf(self.power())
    }

    fn describe(&self, scale: f64) -> String {
        format!(", then polynomial (power {}) to {}", self.power(), rounded(self.end_lr() * scale))
    }
}

impl Decay for Exponential {
    fn rate(&self, at: AfterWarmup) -> f64 {
        let period = self.decay_epochs() * at.steps_per_epoch.max(1) as f64;
        let periods = at.since as f64 / period;
        // The product of two decimal numbers may be slightly above a whole number of steps, such as 0.07 * 100.
        at.target * self.gamma().powf(if self.staircase() { (periods + 1e-9).floor() } else { periods })
    }

    fn describe(&self, _scale: f64) -> String {
        let stairs = if self.staircase() { ", as a staircase" } else { "" };
        format!(", x{} every {}{stairs}", self.gamma(), plural(self.decay_epochs(), "epoch"))
    }
}

/// Rounds to six significant digits, so that 0.1 * 3 is written as 0.3.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Learning rate at the start of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarmupFrom {
    /// `base_lr`, without scaling by the batch size.
    Base,
    /// This rate, without scaling by the batch size.
    Rate(f64),
}

impl KeyValue for WarmupFrom {
    const TYPE: KeyType = KeyType::WordOrNumber("base");
}

impl Serialize for WarmupFrom {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            WarmupFrom::Base => out.serialize_str("base"),
            WarmupFrom::Rate(rate) => rate.write(out),
        }
    }
}

impl<'de> Deserialize<'de> for WarmupFrom {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(source)? {
            toml::Value::String(word) if word == "base" => Ok(WarmupFrom::Base),
            toml::Value::Integer(rate) => Ok(WarmupFrom::Rate(rate as f64)),
            toml::Value::Float(rate) => Ok(WarmupFrom::Rate(rate)),
            other => Err(serde::de::Error::custom(format!("expected {}, got {other}", Self::TYPE.expected()))),
        }
    }
}

// Cosine with warm restarts (Loshchilov and Hutter 2017, arXiv 1608.03983). The cycle lengths are defined as in
// PyTorch. As in timm, the highest rate can change by a factor from cycle to cycle.

section! {
    /// The rate repeatedly follows half a cosine down to end_lr, as in PyTorch's CosineAnnealingWarmRestarts with an update per step.
    pub struct WarmRestarts {
        /// Length of the first cycle in epochs (T_0).
        required cycle_epochs: f64, in Range::Positive;
        /// Factor between the lengths of consecutive cycles (T_mult).
        optional cycle_factor: f64 = 1.0, in Range::AtLeast(1.0);
        /// Factor between the highest rates of consecutive cycles.
        optional gamma: f64 = 1.0, in Range::Positive;
        /// Final rate of each cycle, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
    }
}

impl Decay for WarmRestarts {
    fn rate(&self, at: AfterWarmup) -> f64 {
        let mut length = (self.cycle_epochs * at.steps_per_epoch as f64).max(1.0);
        let (mut left, mut top) = (at.since as f64, at.target);
        // Growing cycles soon exceed any number of steps. Cycles of equal length are counted with a division instead of
        // a loop.
        if self.cycle_factor() == 1.0 {
            let cycles = (left / length).floor();
            top *= self.gamma().powf(cycles);
            left -= cycles * length;
        } else {
            while left >= length {
                left -= length;
                length *= self.cycle_factor();
                top *= self.gamma();
            }
        }
        let end = self.end_lr() * at.scale;
        end + (top - end) * (1.0 + (PI * left / length).cos()) / 2.0
    }

    fn describe(&self, scale: f64) -> String {
        let end = rounded(self.end_lr() * scale);
        let growing = match self.cycle_factor() {
            1.0 => String::new(),
            factor => format!(", each {factor} times as long as the one before"),
        };
        format!(", then cosine to {end} in cycles of {}{growing}", plural(self.cycle_epochs, "epoch"))
    }
}

// The one-cycle schedule (Smith and Topin 2017, arXiv 1708.07120), with the phases and settings of PyTorch's
// OneCycleLR.

/// How the rate changes during a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anneal {
    Cosine,
    Linear,
}

words! { Anneal { Cosine = "cos", Linear = "linear" } }

section! {
    /// The rate rises from target / div_factor to the target, then falls to the first rate / final_div_factor. This includes the warm-up.
    /// As PyTorch's OneCycleLR, except for the default of cycle_momentum.
    pub struct OneCycle {
        /// Fraction of the steps in which the rate rises.
        optional pct_start: f64 = 0.3, in Range::OpenFraction(0.3);
        /// The first rate is the target divided by this.
        optional div_factor: f64 = 25.0, in Range::AtLeast(1.0);
        /// The last rate is the first divided by this.
        optional final_div_factor: f64 = 1e4, in Range::AtLeast(1.0);
        /// Whether the rate follows half a cosine or a straight line.
        optional anneal: Anneal = Anneal::Cosine;
        /// Whether the rate falls in two phases: to its initial value in as many steps as it rose, and then below this value.
        optional three_phase: bool = false;
        /// Whether the momentum (adam, adamw, lamb, lion: beta1) falls from max_momentum to base_momentum while the rate rises, and then
        /// rises again.
        optional cycle_momentum: bool = false;
        /// Lowest momentum, if cycle_momentum is true.
        optional base_momentum: f64 = 0.85, in Range::Fraction;
        /// Highest momentum, if cycle_momentum is true.
        optional max_momentum: f64 = 0.95, in Range::Fraction;
    }
}

/// The values at the start and at the end of a phase of the one-cycle schedule.
type Ends = [f64; 2];

impl OneCycle {
    /// Returns the rate or momentum at a step. `first`, `middle` and `last` are the values at the ends of the phases.
    /// `middle` is used only with three phases.
    fn value(&self, at: AfterWarmup, [first, middle, last]: [Ends; 3]) -> f64 {
        let (steps, up) = (at.length as f64, self.pct_start() * at.length as f64);
        let mut phases = vec![(up - 1.0, first)];
        phases.extend(self.three_phase().then_some((2.0 * up - 2.0, middle)));
        phases.push((steps - 1.0, last));
        // An extended run goes through the remaining phases more slowly. After its end, the last value stays.
        let (step, mut start) = ((at.part * steps).min(steps - 1.0), 0.0);
        let whole = phases.len() - 1;
        let place = phases.iter().position(|(end, _)| step <= *end).unwrap_or(whole);
        if let Some((end, _)) = place.checked_sub(1).and_then(|before| phases.get(before)) {
            start = *end;
        }
        let (end, [from, to]) = phases[place];
        // In a very short run, a phase may have no steps. Then use the value at its end.
        let part = if end > start { (step - start) / (end - start) } else { 1.0 };
        match self.anneal() {
            Anneal::Cosine => to + (from - to) / 2.0 * (1.0 + (PI * part).cos()),
            Anneal::Linear => from + (to - from) * part,
        }
    }
}

impl Decay for OneCycle {
    fn ends_with_run(&self) -> bool {
        true
    }

    fn rate(&self, at: AfterWarmup) -> f64 {
        let (top, first) = (at.target, at.target / self.div_factor());
        let last = first / self.final_div_factor();
        let falls = if self.three_phase() { first } else { top };
        self.value(at, [[first, top], [top, first], [falls, last]])
    }

    fn momentum(&self, at: AfterWarmup) -> Option<f64> {
        let (low, high) = (self.base_momentum(), self.max_momentum());
        let rises = if self.three_phase() { high } else { low };
        self.cycle_momentum().then(|| self.value(at, [[high, low], [low, high], [rises, high]]))
    }

    fn describe(&self, _scale: f64) -> String {
        let (first, last) = (self.div_factor(), self.div_factor() * self.final_div_factor());
        let percent = 100.0 * self.pct_start();
        format!(
            ", one cycle: rises from 1/{} of this rate in {percent} % of the steps, then falls to 1/{}",
            rounded(first),
            rounded(last)
        )
    }

    fn check(&self, warmup_epochs: f64) -> Result<(), ScheduleError> {
        let wrong = |key, why: String| Err(ScheduleError { key, why });
        if warmup_epochs > 0.0 {
            return wrong(
                "warmup_epochs",
                "cannot be combined with one_cycle, which has its own warm-up; remove this key".into(),
            );
        }
        if self.three_phase() && self.pct_start() >= 0.5 {
            let pct = self.pct_start();
            return wrong(
                "pct_start",
                format!("must be below 0.5 with three_phase, got {pct}: two phases have this length"),
            );
        }
        Ok(())
    }
}

// The plateau schedule, like PyTorch's ReduceLROnPlateau, lowers the rate when a score no longer improves. It is the
// only schedule with state. Checkpoints contain the state.

section! {
    /// The rate is multiplied by gamma when a score no longer improves. Evaluations in the warm-up do not count.
    pub struct Plateau {
        /// Score that the schedule follows.
        optional score: Parsed<ScoreName> = Parsed::new("loss", ScoreName::LOSS);
        /// Factor by which the rate is multiplied.
        optional gamma: f64 = 0.1, in Range::OpenFraction(0.1);
        /// Number of consecutive evaluations without a better score that are tolerated. The rate falls at the next one.
        optional patience: u32 = 10;
        /// Minimum improvement, as a fraction of the best score, that counts as better.
        optional threshold: f64 = 1e-4, in Range::AtLeast(0.0);
        /// Number of evaluations after a decrease that do not count.
        optional cooldown: u32 = 0;
        /// Lowest rate, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
    }
}

impl Plateau {
    /// Returns the state after a score. `before` is `None` for the first score.
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
        format!(", x{gamma} after {} evaluations without a better {score}, down to {end}", patience + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often the rate was lowered after each score.
    fn drops(plateau: &Plateau, scores: &[f64]) -> Vec<u32> {
        let mut state = None;
        let mut after = |score: &f64| state.insert(plateau.after(state, *score)).drops;
        scores.iter().map(&mut after).collect()
    }

    /// Compares the rates with those of `torch.optim.lr_scheduler.ReduceLROnPlateau` (2.x) for the same scores, see
    /// tests/golden/schedules.py.
    #[test]
    fn plateau_drops_match_pytorch() {
        let plateau = Plateau { patience: Some(1), ..Plateau::default() };
        assert_eq!(drops(&plateau, &[1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8]), [0, 0, 0, 1, 1, 2, 2]);
        // a change within the threshold of 1e-4 is not an improvement
        assert_eq!(drops(&plateau, &[1.0, 0.99995, 0.99991, 0.9998]), [0, 0, 1, 1]);
        let calm = Plateau { cooldown: Some(2), patience: Some(0), ..plateau.clone() };
        assert_eq!(drops(&calm, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), [0, 1, 1, 1, 2, 2]);
        let shares = Plateau { score: Some(Parsed::new("top1", ScoreName::TOP1)), patience: Some(0), ..plateau };
        assert_eq!(drops(&shares, &[0.5, 0.6, 0.6, f64::NAN, 0.7]), [0, 0, 1, 2, 2]);
    }
}

//! How the learning rate falls once the warm-up is over: one struct of settings for each kind.

use std::f64::consts::PI;

use schema::{Range, section};

/// A schedule that cannot be used: the key of `[schedule]` at fault, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schedule.{key}: {why}")]
pub struct ScheduleError {
    /// Key inside `[schedule]`.
    pub key: &'static str,
    /// Expected, got, what to try.
    pub why: String,
}

/// A step after the warm-up.
#[derive(Clone, Copy, Debug)]
pub struct AfterWarmup {
    /// The step, counted over the whole run.
    pub step: u64,
    /// Steps since the end of the warm-up.
    pub since: u64,
    /// The same as a part of all steps after the warm-up, from 0 to 1.
    pub part: f64,
    /// Steps after the warm-up, at least 1; those that were planned at first, where the run became longer on its way.
    pub length: u64,
    /// How often a schedule with a memory has lowered the rate.
    pub drops: u32,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Learning rate at the end of the warm-up.
    pub target: f64,
    /// batch / reference_batch, by which `end_lr` is multiplied.
    pub scale: f64,
}

/// A kind of decay.
pub trait Decay {
    /// The learning rate of a step.
    fn rate(&self, at: AfterWarmup) -> f64;

    /// The momentum of a step, where it changes with the rate.
    fn momentum(&self, _at: AfterWarmup) -> Option<f64> {
        None
    }

    /// The decay in a few words, for the log; `scale` multiplies `end_lr`.
    fn describe(&self, scale: f64) -> String;

    /// Whether it runs over the whole length of the run, so that a longer run is another decay.
    fn ends_with_run(&self) -> bool {
        false
    }

    /// Refuses settings that do not fit a warm-up of this many epochs.
    fn check(&self, _warmup_epochs: f64) -> Result<(), ScheduleError> {
        Ok(())
    }
}

section! {
    /// The rate stays.
    pub struct Constant {}
}

section! {
    /// The rate is multiplied by gamma at each milestone.
    pub struct Step {
        /// Epochs at which the rate is multiplied by gamma, ascending, counted from 0 with the warm-up included.
        required milestones: Vec<f64>;
        /// Factor.
        optional gamma: f64 = 0.1, in Range::Positive;
    }
}

section! {
    /// Half a cosine down to end_lr.
    pub struct Cosine {
        /// Last rate, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
    }
}

section! {
    /// (1 - u)^power down to end_lr, u from 0 to 1; power 1 is a straight line.
    pub struct Polynomial {
        /// Last rate, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
        /// Exponent.
        optional power: f64 = 1.0, in Range::Positive;
    }
}

section! {
    /// The rate is multiplied by gamma every decay_epochs.
    pub struct Exponential {
        /// Factor.
        optional gamma: f64 = 0.1, in Range::Positive;
        /// Epochs that one factor gamma takes.
        optional decay_epochs: f64 = 1.0, in Range::Positive;
        /// Falls in steps of decay_epochs instead of smoothly.
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
        let period = self.decay_epochs() * at.steps_per_epoch as f64;
        let periods = at.since as f64 / period.max(1.0);
        at.target * self.gamma().powf(if self.staircase() { periods.floor() } else { periods })
    }

    fn describe(&self, _scale: f64) -> String {
        let stairs = if self.staircase() { ", in stairs" } else { "" };
        format!(", x{} every {} epochs{stairs}", self.gamma(), self.decay_epochs())
    }
}

/// Six significant digits at most: 0.1 * 3 is written as 0.3.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

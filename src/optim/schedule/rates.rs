//! The learning rates of one run. They are a function of the step alone, so a resumed run has the rates that an unbroken one would
//! have had.

use super::decay::{AfterWarmup, ScheduleError, rounded};
use super::spec::ScheduleSpec;
use super::stretch::Stretches;
use super::warmup::WarmupFrom;

/// The rates of one run: `lr(step)` for every step from 0 to `epochs * steps_per_epoch`.
#[derive(Clone, Debug)]
pub struct Schedule {
    spec: ScheduleSpec,
    batch: usize,
    steps_per_epoch: u64,
    /// batch / reference_batch.
    scale: f64,
    /// Rate at the end of the warm-up.
    target: f64,
    /// Rate of step 0 when there is a warm-up.
    from: f64,
    warmup_steps: u64,
    total_steps: u64,
    stretches: Stretches,
}

impl Schedule {
    /// The schedule of a run of `epochs` epochs of `steps_per_epoch` steps of `batch` images.
    ///
    /// Linear scaling and warm-up are those of Goyal et al. 2017: target = base_lr * batch / reference_batch.
    pub fn new(spec: &ScheduleSpec, batch: usize, epochs: u32, steps_per_epoch: u64) -> Result<Self, ScheduleError> {
        spec.check(epochs)?;
        let scale = spec.reference_batch.map_or(1.0, |reference| batch as f64 / reference as f64);
        let target = spec.base_lr * scale;
        let from = match spec.warmup_from {
            Some(WarmupFrom::Base) => spec.base_lr,
            Some(WarmupFrom::Rate(rate)) => rate,
            None if target > spec.base_lr => spec.base_lr,
            None => 0.0,
        };
        let steps = |epochs: f64| (epochs * steps_per_epoch as f64).round() as u64;
        Ok(Schedule {
            batch,
            steps_per_epoch,
            scale,
            target,
            from,
            warmup_steps: steps(spec.warmup_epochs),
            total_steps: u64::from(epochs) * steps_per_epoch,
            stretches: Stretches::new(spec.stretched.as_deref().unwrap_or_default(), steps_per_epoch),
            spec: spec.clone(),
        })
    }

    /// The rate of optimizer step `step`, counted from 0 over the whole run. Past the end, the last rate.
    pub fn lr(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            let done = step as f64 / self.warmup_steps as f64;
            return self.from + (self.target - self.from) * done;
        }
        let since = step.min(self.total_steps) - self.warmup_steps.min(self.total_steps);
        let part = self.stretches.part(step, self.warmup_steps, self.total_steps);
        let (steps_per_epoch, target, scale) = (self.steps_per_epoch, self.target, self.scale);
        self.spec.kind.settings().rate(AfterWarmup { step, since, part, steps_per_epoch, target, scale })
    }

    /// The rate at the end of the warm-up, to six digits.
    pub fn target(&self) -> f64 {
        rounded(self.target)
    }

    /// batch / reference_batch; 1 without one.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Steps of the warm-up.
    pub fn warmup_steps(&self) -> u64 {
        self.warmup_steps
    }

    /// Steps of the whole run.
    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// One line for the start of a log: the target and where it comes from, the warm-up, the decay.
    pub fn describe(&self) -> String {
        let spec = &self.spec;
        let mut line = format!("lr {}", rounded(self.target));
        if let Some(reference) = spec.reference_batch {
            let (base, batch) = (spec.base_lr, self.batch);
            line += &format!(" (= {base} x batch {batch} / {reference})");
        }
        if self.warmup_steps > 0 {
            let (from, steps) = (rounded(self.from), self.warmup_steps);
            line += &format!(", warm-up from {from} over {} epochs ({steps} steps)", spec.warmup_epochs);
        }
        line + &spec.kind.settings().describe(self.scale)
    }
}

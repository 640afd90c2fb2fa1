//! The learning rates of one run. They are a function of the step alone, and for the plateau schedule of its falls, which checkpoints keep,
//! so a resumed run has the rates that an unbroken one would have had.

use schema::number_text;

use super::decay::{AfterWarmup, ScheduleError, rounded};
use super::spec::ScheduleSpec;
use super::stretch::Stretches;
use super::warmup::WarmupFrom;

/// The rates of one run: `lr(step)` for every step from 0 to its last.
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
    /// See [`AfterWarmup::drops`].
    drops: u32,
}

impl Schedule {
    /// The schedule of a run of `epochs` epochs of `steps_per_epoch` steps of `batch` images.
    ///
    /// Linear scaling and warm-up are those of Goyal et al. 2017: target = base_lr * batch / reference_batch.
    pub fn new(spec: &ScheduleSpec, batch: usize, epochs: u32, steps_per_epoch: u64) -> Result<Self, ScheduleError> {
        Self::over(spec, batch, u64::from(epochs) * steps_per_epoch, steps_per_epoch)
    }

    /// The same of a run of so many steps, which may end within an epoch.
    pub fn over(
        spec: &ScheduleSpec,
        batch: usize,
        total_steps: u64,
        steps_per_epoch: u64,
    ) -> Result<Self, ScheduleError> {
        spec.check(total_steps as f64 / steps_per_epoch.max(1) as f64)?;
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
            stretches: Stretches::new(spec.stretched.as_deref().unwrap_or_default(), steps_per_epoch),
            total_steps,
            drops: 0,
            spec: spec.clone(),
        })
    }

    /// The rate of optimizer step `step`, counted from 0 over the whole run. Past the end, the last rate.
    pub fn lr(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            let done = step as f64 / self.warmup_steps as f64;
            return self.from + (self.target - self.from) * done;
        }
        self.spec.kind.settings().rate(self.after_warmup(step))
    }

    /// The momentum of that step, where the schedule sets it.
    pub fn momentum(&self, step: u64) -> Option<f64> {
        (step >= self.warmup_steps).then(|| self.spec.kind.settings().momentum(self.after_warmup(step))).flatten()
    }

    fn after_warmup(&self, step: u64) -> AfterWarmup {
        let since = step.min(self.total_steps) - self.warmup_steps.min(self.total_steps);
        let planned = self.stretches.planned(step, self.total_steps);
        let length = planned.saturating_sub(self.warmup_steps).max(1);
        let part = self.stretches.part(step, self.warmup_steps, self.total_steps);
        let (steps_per_epoch, target, scale) = (self.steps_per_epoch, self.target, self.scale);
        let drops = self.drops;
        AfterWarmup { step, since, part, length, drops, steps_per_epoch, target, scale }
    }

    /// How often a schedule with a memory has lowered the rate.
    pub fn drops(&self) -> u32 {
        self.drops
    }

    /// The same from the next step on.
    pub fn set_drops(&mut self, drops: u32) {
        self.drops = drops;
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

    /// Length of the whole run in epochs.
    pub fn epochs(&self) -> f64 {
        self.total_steps as f64 / self.steps_per_epoch.max(1) as f64
    }

    /// One line for the start of a log: the target and where it comes from, the warm-up, the decay.
    pub fn describe(&self) -> String {
        let spec = &self.spec;
        let mut line = format!("lr {}", number_text(rounded(self.target)));
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

//! The learning rates of a run. They depend only on the step. The plateau schedule also depends on how often the rate
//! was lowered. Because checkpoints contain this number, a resumed run has the same rates as an uninterrupted run.

use base::text::plural;
use schema::{Range, Section, check_section, kinds, number_text, section};

use super::decay::{
    AfterWarmup, Constant, Cosine, Decay, Exponential, OneCycle, Plateau, Polynomial, ScheduleError, Step,
    WarmRestarts, WarmupFrom, rounded,
};

/// The rates of a run: `lr(step)` for every step from 0 to the last.
#[derive(Clone, Debug)]
pub struct Schedule {
    spec: ScheduleSpec,
    batch: usize,
    steps_per_epoch: u64,
    /// batch / reference_batch, or 1 without `reference_batch`.
    scale: f64,
    /// Rate at the end of the warm-up.
    target: f64,
    /// Rate at step 0, if there is a warm-up.
    from: f64,
    warmup_steps: u64,
    total_steps: u64,
    stretches: Stretches,
    /// See [`AfterWarmup::drops`].
    drops: u32,
}

impl Schedule {
    /// Creates the schedule for `epochs` epochs of `steps_per_epoch` steps of `batch` images.
    ///
    /// Linear scaling and warm-up follow Goyal et al. 2017: target = base_lr * batch / reference_batch.
    pub fn new(spec: &ScheduleSpec, batch: usize, epochs: u32, steps_per_epoch: u64) -> Result<Self, ScheduleError> {
        Self::over(spec, batch, u64::from(epochs) * steps_per_epoch, steps_per_epoch)
    }

    /// Creates the schedule for `total_steps` steps. The run may end within an epoch.
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

    /// Returns the rate of optimizer step `step`, counted from 0 over the whole run. A decay that depends on the length
    /// of the run keeps its last rate after the end.
    pub fn lr(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            let done = step as f64 / self.warmup_steps as f64;
            return self.from + (self.target - self.from) * done;
        }
        self.spec.kind.settings().rate(self.after_warmup(step))
    }

    /// Returns the momentum of this step if the schedule sets it.
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

    /// Returns how often the plateau schedule has lowered the rate.
    pub fn drops(&self) -> u32 {
        self.drops
    }

    /// Sets how often the plateau schedule has lowered the rate, from the next step on.
    pub fn set_drops(&mut self, drops: u32) {
        self.drops = drops;
    }

    /// Returns the rate at the end of the warm-up, with six digits.
    pub fn target(&self) -> f64 {
        rounded(self.target)
    }

    /// Returns batch / reference_batch, or 1 if `reference_batch` is absent.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    pub fn warmup_steps(&self) -> u64 {
        self.warmup_steps
    }

    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// Returns the length of the run in epochs.
    pub fn epochs(&self) -> f64 {
        self.total_steps as f64 / self.steps_per_epoch.max(1) as f64
    }

    /// Returns one line for the log: the target and its calculation, the warm-up, and the decay.
    pub fn describe(&self) -> String {
        let spec = &self.spec;
        let mut line = format!("lr {}", number_text(rounded(self.target)));
        if let Some(reference) = spec.reference_batch {
            let (base, batch) = (spec.base_lr, self.batch);
            line += &format!(" (= {base} x batch {batch} / {reference})");
        }
        if self.warmup_steps > 0 {
            let (from, steps) = (rounded(self.from), self.warmup_steps);
            line += &format!(
                ", warm-up from {from} over {} ({})",
                plural(spec.warmup_epochs, "epoch"),
                plural(steps, "step")
            );
        }
        line + &spec.kind.settings().describe(self.scale)
    }
}

// Extensions of a run that has already started. If its decay ends with the run, the rest of the decay is stretched to
// the new end, so that the rate does not jump.

/// A request to extend a run that has already started.
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// Number of steps that are finished.
    pub step: u64,
    pub steps_per_epoch: u64,
    /// Number of images per step.
    pub batch: usize,
    /// Number of epochs that the run had planned before the extension.
    pub before: u32,
    /// Number of epochs that the run has in total after the extension.
    pub epochs: u32,
    /// How often the plateau schedule has lowered the rate.
    pub drops: u32,
}

impl Extension {
    /// Records the extension in `schedule.stretched` if it changes a decay that has begun. Returns a note for the log
    /// that describes the new rates.
    pub fn apply(&self, spec: &mut ScheduleSpec) -> Result<String, ScheduleError> {
        let Extension { step, steps_per_epoch, batch, before, epochs, drops } = *self;
        let old = Schedule::new(spec, batch, before, steps_per_epoch)?;
        let at = step as f64 / steps_per_epoch.max(1) as f64;
        let ends_with_run = spec.kind.settings().ends_with_run();
        let under_way = ends_with_run && step > old.warmup_steps() && step < old.total_steps();
        let over = ends_with_run && step >= old.total_steps();
        if under_way || over {
            spec.stretched.get_or_insert_default().extend([at, f64::from(before)]);
        }
        let mut new = Schedule::new(spec, batch, epochs, steps_per_epoch)?;
        new.set_drops(drops);
        let (was, is) = (rounded(old.lr(step)), rounded(new.lr(step)));
        let what = match ends_with_run {
            false => format!("the learning rates stay as in the recipe (lr {is})"),
            true if under_way => {
                format!("the rest of the decay is stretched to the new end, from epoch {} on (lr {is})", rounded(at))
            }
            true if over => {
                format!(
                    "the decay had ended (lr {was}); it continues as in a run of {} (lr {is})",
                    plural(epochs, "epoch")
                )
            }
            true => format!("the decay has not begun and will run to the new end (lr {is})"),
        };
        Ok(format!("note: epochs {before} -> {epochs} from step {step} on: {what}"))
    }
}

// Earlier extensions. If the run was extended before its end, the rest of the decay is stretched. If it was extended after its end, its
// rates follow the longer schedule from then on.

/// An extension of the run. Positions are counted in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// The step at which the run was extended.
    at: u64,
    /// The number of steps of the run that were planned before the extension.
    end: u64,
}

/// All extensions, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretches(Vec<Stretch>);

impl Stretches {
    /// Converts `schedule.stretched`, which has pairs of epochs.
    pub fn new(epochs: &[f64], steps_per_epoch: u64) -> Self {
        let steps = |epochs: f64| (epochs * steps_per_epoch as f64).round() as u64;
        Self(epochs.chunks_exact(2).map(|pair| Stretch { at: steps(pair[0]), end: steps(pair[1]) }).collect())
    }

    /// Returns the number of steps of the run, as planned when the decay that is active at `step` began. `end` is the
    /// number of steps in the current plan.
    pub fn planned(&self, step: u64, end: u64) -> u64 {
        let (stretches, end) = self.extensions_at(step, end);
        stretches.first().map_or(end, |first| first.end)
    }

    /// Returns the extensions of the decay that is active at `step`, and the last step of that decay.
    fn extensions_at(&self, step: u64, end: u64) -> (&[Stretch], u64) {
        let over = |stretch: &Stretch| stretch.at >= stretch.end;
        let begin = self.0.iter().rposition(|stretch| over(stretch) && step >= stretch.at).map_or(0, |last| last + 1);
        let own = &self.0[begin..];
        own.iter().position(over).map_or((own, end), |next| (&own[..next], own[next].end))
    }

    /// Returns how much of the decay from step `from` to step `end` is finished at `step`, from 0 to 1.
    pub fn part(&self, step: u64, mut from: u64, end: u64) -> f64 {
        let (stretches, end) = self.extensions_at(step, end);
        let mut before = 0.0;
        let over = |step: u64, from: u64, end: u64| {
            step.min(end).saturating_sub(from) as f64 / end.saturating_sub(from).max(1) as f64
        };
        for stretch in stretches {
            let planned = |step| before + (1.0 - before) * over(step, from, stretch.end);
            if step <= stretch.at {
                return planned(step);
            }
            (before, from) = (planned(stretch.at), stretch.at);
        }
        before + (1.0 - before) * over(step, from, end)
    }
}

// The `[schedule]` section of a recipe. To add a kind of decay, add a line to [`ScheduleKind`].

kinds! {
    pub enum ScheduleKind: Decay {
        "constant" => Constant(Constant),
        "step" => Step(Step),
        "cosine" => Cosine(Cosine),
        "polynomial" => Polynomial(Polynomial),
        "exponential" => Exponential(Exponential),
        "one_cycle" => OneCycle(OneCycle),
        "warm_restarts" => WarmRestarts(WarmRestarts),
        "plateau" => Plateau(Plateau),
    }
}

impl Default for ScheduleKind {
    fn default() -> Self {
        Self::Constant(Constant::default())
    }
}

section! {
    /// Learning rate: scaling with the batch size, linear warm-up, decay. Epochs may be fractions.
    pub struct ScheduleSpec (kind: ScheduleKind, last, "How the learning rate falls after the warm-up.") {
        /// Learning rate for reference_batch images per step.
        required base_lr: f64, in Range::AtLeast(0.0);
        /// Batch size of base_lr. The learning rate is multiplied by batch / reference_batch.
        absent reference_batch: usize = "no scaling", in Range::AtLeast(1.0);
        /// Epochs of linear warm-up, updated each step. Must be less than epochs.
        default warmup_epochs: f64 = 0.0, in Range::AtLeast(0.0);
        /// Learning rate at the start of the warm-up. "base" is base_lr.
        absent warmup_from: WarmupFrom =
            "\"base\" if the scaled learning rate (base_lr x batch / reference_batch) is higher than base_lr, else 0",
            in Range::AtLeast(0.0);
        /// Written by --extend-epochs, as pairs of epochs. Each time the run was extended, the first number is the epoch of the extension
        /// and the second is the epoch at which the decay would have ended. If both are equal, the run had already ended, and later rates
        /// follow the longer run.
        absent stretched: Vec<f64> = "[]";
    }
}

impl ScheduleSpec {
    /// Returns a constant rate without scaling and warm-up.
    pub fn constant(lr: f64) -> Self {
        Self { base_lr: lr, ..Self::default() }
    }

    /// Checks each value with the schema and against the run length in epochs. The length is infinite if it is not
    /// known yet.
    pub fn check(&self, epochs: impl Into<f64>) -> Result<(), ScheduleError> {
        let epochs = epochs.into();
        let wrong = |key, why| Err(ScheduleError { key, why });
        let table = toml::Table::try_from(self).map_err(|e| ScheduleError { key: "kind", why: e.to_string() })?;
        check_section(&Self::SCHEMA, &table).map_err(|fault| ScheduleError { key: fault.key, why: fault.why })?;
        let warmup = self.warmup_epochs;
        if warmup > 0.0 && warmup >= epochs {
            return wrong("warmup_epochs", format!("must be below epochs = {epochs}, got {}", number_text(warmup)));
        }
        if self.warmup_from.is_some() && warmup == 0.0 {
            return wrong(
                "warmup_from",
                "has no effect with warmup_epochs = 0; set schedule.warmup_epochs, or remove this key".into(),
            );
        }
        check_stretched(self.stretched.as_deref().unwrap_or_default())?;
        self.kind.settings().check(warmup)
    }
}

/// Returns an error if `schedule.stretched` is not a list of pairs, or if the extensions are not in order.
fn check_stretched(epochs: &[f64]) -> Result<(), ScheduleError> {
    let wrong = |why: String| Err(ScheduleError { key: "stretched", why });
    if !epochs.len().is_multiple_of(2) {
        return wrong(format!("expected pairs of epochs, such as [40, 80], got {} numbers", epochs.len()));
    }
    match epochs.chunks_exact(2).find(|pair| !(0.0 < pair[0] && pair[0] <= pair[1])) {
        Some(pair) => wrong(format!("a decay that ends at epoch {} cannot be stretched at epoch {}", pair[1], pair[0])),
        None if !epochs.iter().step_by(2).is_sorted() => wrong("the first numbers of its pairs must ascend".into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Constant, Cosine, OneCycle, Plateau, Polynomial, ScheduleKind};
    use super::*;

    const PER_EPOCH: u64 = 10;

    fn line() -> ScheduleSpec {
        let kind = ScheduleKind::Polynomial(Polynomial { power: None, end_lr: None });
        ScheduleSpec { kind, warmup_epochs: 1.0, ..ScheduleSpec::constant(1.0) }
    }

    fn extension(step: u64, before: u32, epochs: u32) -> Extension {
        Extension { step, steps_per_epoch: PER_EPOCH, batch: 8, before, epochs, drops: 0 }
    }

    fn rate(spec: &ScheduleSpec, epochs: u32, step: u64) -> f64 {
        Schedule::new(spec, 8, epochs, PER_EPOCH).unwrap().lr(step)
    }

    /// The schedule is a straight line from 1 at step 10 to 0 at step 50. At rate 0.5 it is stretched to step 90, and
    /// at 0.25 to step 100.
    #[test]
    fn linear_schedule_can_be_stretched_repeatedly() {
        let mut spec = line();
        let said = extension(30, 5, 9).apply(&mut spec).unwrap();
        assert!(["stretched", "epoch 3 on", "(lr 0.5)"].iter().all(|part| said.contains(part)), "{said}");
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got}, not {want}");
        let rows = [(5, 0.5), (10, 1.0), (20, 0.75), (30, 0.5), (60, 0.25), (90, 0.0), (95, 0.0)];
        rows.into_iter().for_each(|(step, want)| close(rate(&spec, 9, step), want));
        extension(60, 9, 10).apply(&mut spec).unwrap();
        let rows = [(20, 0.75), (30, 0.5), (60, 0.25), (80, 0.125), (100, 0.0)];
        rows.into_iter().for_each(|(step, want)| close(rate(&spec, 10, step), want));
        assert_eq!(spec.stretched, Some(vec![3.0, 5.0, 6.0, 9.0]));
        assert_eq!(spec.check(10), Ok(()));
    }

    #[test]
    fn extension_keeps_finished_steps_and_constant_schedules() {
        let mut cosine = ScheduleSpec { kind: ScheduleKind::Cosine(Cosine { end_lr: None }), ..line() };
        let over = extension(50, 5, 10).apply(&mut cosine).unwrap();
        assert!(["ended (lr 0)", "10 epochs", "(lr 0.58"].iter().all(|part| over.contains(part)), "{over}");
        // finished steps keep their rates, and later steps follow the longer run, also after a second extension
        let [short, long] = [5, 10].map(|epochs| Schedule::new(&line(), 8, epochs, PER_EPOCH).unwrap());
        let mut spec = line();
        extension(50, 5, 10).apply(&mut spec).unwrap();
        assert_eq!(spec.check(10), Ok(()));
        (0..50).for_each(|step| assert_eq!(rate(&spec, 10, step), short.lr(step)));
        (50..=100).for_each(|step| assert_eq!(rate(&spec, 10, step), long.lr(step)));
        extension(73, 10, 12).apply(&mut spec).unwrap();
        assert_eq!(spec.stretched, Some(vec![5.0, 5.0, 7.3, 10.0]));
        (0..50).for_each(|step| assert_eq!(rate(&spec, 12, step), short.lr(step)));
        (50..=73).for_each(|step| assert_eq!(rate(&spec, 12, step), long.lr(step)));
        assert!((rate(&spec, 12, 120)).abs() < 1e-12 && rate(&spec, 12, 100) > 0.0);
        let mut waiting = ScheduleSpec { kind: ScheduleKind::Cosine(Cosine { end_lr: None }), ..line() };
        assert!(extension(10, 5, 10).apply(&mut waiting).unwrap().contains("has not begun"));
        assert_eq!(waiting.stretched, None);
        let mut constant = ScheduleSpec { kind: ScheduleKind::Constant(Constant {}), ..line() };
        assert!(extension(30, 5, 9).apply(&mut constant).unwrap().contains("recipe"));
        assert_eq!([cosine.stretched, constant.stretched], [Some(vec![5.0, 5.0]), None]);
    }

    /// Neither rate nor momentum jumps, in either phase, and both reach their final values.
    #[test]
    fn one_cycle_is_stretched_with_the_run() {
        let cycle = OneCycle { cycle_momentum: Some(true), ..OneCycle::default() };
        let spec = ScheduleSpec { kind: ScheduleKind::OneCycle(cycle), ..ScheduleSpec::constant(1.0) };
        let old = Schedule::new(&spec, 8, 5, PER_EPOCH).unwrap();
        for step in [7, 30] {
            let mut longer = spec.clone();
            let said = extension(step, 5, 9).apply(&mut longer).unwrap();
            assert!(said.contains("stretched"), "{said}");
            let new = Schedule::new(&longer, 8, 9, PER_EPOCH).unwrap();
            let same = |step: u64, of: u64| {
                let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "step {step}: {a}, not {b}");
                near(new.lr(step), old.lr(of));
                near(new.momentum(step).unwrap(), old.momentum(of).unwrap());
            };
            (0..=step).for_each(|step| same(step, step));
            same(89, 49);
            same(90, 50);
            assert!(new.lr(step + 1) != old.lr(step + 1));
        }
    }

    /// The note names the current rate of the plateau schedule.
    #[test]
    fn an_extended_run_keeps_the_lowered_rate_of_a_plateau() {
        let kind = ScheduleKind::Plateau(Plateau::default());
        let mut spec = ScheduleSpec { kind, ..ScheduleSpec::constant(1.0) };
        let said = Extension { drops: 2, ..extension(30, 5, 9) }.apply(&mut spec).unwrap();
        assert!(said.contains("recipe") && said.contains("(lr 0.01)"), "{said}");
    }

    #[test]
    fn invalid_stretches_are_refused() {
        for bad in [&[1.0][..], &[3.0, 2.0], &[0.0, 2.0], &[3.0, 5.0, 2.0, 9.0], &[f64::NAN, 1.0]] {
            assert_eq!(check_stretched(bad).unwrap_err().key, "stretched", "{bad:?}");
        }
    }
}

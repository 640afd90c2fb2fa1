//! A run that is made longer while it is under way: what is left of a decay that ends with the run is stretched from there to the new end,
//! so that the rate does not jump.

use super::decay::{ScheduleError, rounded};
use super::rates::Schedule;
use super::spec::ScheduleSpec;

/// A run under way that is to be longer.
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// Steps that are done.
    pub step: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Images of a step.
    pub batch: usize,
    /// Epochs as planned before.
    pub before: u32,
    /// Epochs from now on.
    pub epochs: u32,
    /// How often a schedule with a memory has lowered the rate.
    pub drops: u32,
}

impl Extension {
    /// Changes the schedule where it has to change, and says what becomes of it.
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
            false => format!("the rates are those of the recipe as written (lr {is})"),
            true if under_way => {
                format!("what is left of the decay is stretched from epoch {} on (lr {is})", rounded(at))
            }
            true if over => {
                format!(
                    "the decay had come to its end (lr {was}), and goes on as that of a run of {epochs} epochs (lr {is})"
                )
            }
            true => format!("the decay, which has not begun, runs to the new end (lr {is})"),
        };
        Ok(format!("note: epochs {before} -> {epochs} from step {step} on: {what}"))
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

    /// A straight line from 1 at step 10 to 0 at step 50, at 0.5 stretched to step 90, at 0.25 to step 100.
    #[test]
    fn what_is_left_is_stretched_as_often_as_wanted() {
        let mut spec = line();
        let said = extension(30, 5, 9).apply(&mut spec).unwrap();
        assert!(said.ends_with("what is left of the decay is stretched from epoch 3 on (lr 0.5)"), "{said}");
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
    fn other_schedules_and_other_moments_leave_the_recipe_as_it_is() {
        let mut cosine = ScheduleSpec { kind: ScheduleKind::Cosine(Cosine { end_lr: None }), ..line() };
        let over = extension(50, 5, 10).apply(&mut cosine).unwrap();
        assert!(
            over.contains("had come to its end (lr 0), and goes on as that of a run of 10 epochs (lr 0.58"),
            "{over}"
        );
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
        assert!(extension(30, 5, 9).apply(&mut constant).unwrap().contains("as written"));
        assert_eq!([cosine.stretched, constant.stretched], [Some(vec![5.0, 5.0]), None]);
    }

    /// Neither rate nor momentum jumps, in either phase, and both come to their ends.
    #[test]
    fn one_cycle_is_stretched_with_the_run() {
        let cycle = OneCycle { cycle_momentum: Some(true), ..OneCycle::default() };
        let spec = ScheduleSpec { kind: ScheduleKind::OneCycle(cycle), ..ScheduleSpec::constant(1.0) };
        let old = Schedule::new(&spec, 8, 5, PER_EPOCH).unwrap();
        for step in [7, 30] {
            let mut longer = spec.clone();
            let said = extension(step, 5, 9).apply(&mut longer).unwrap();
            assert!(said.contains("what is left of the decay is stretched"), "{said}");
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

    /// The rate that is told is the one that the plateau has come to.
    #[test]
    fn what_has_fallen_stays_down() {
        let kind = ScheduleKind::Plateau(Plateau::default());
        let mut spec = ScheduleSpec { kind, ..ScheduleSpec::constant(1.0) };
        let said = Extension { drops: 2, ..extension(30, 5, 9) }.apply(&mut spec).unwrap();
        assert!(said.ends_with("the rates are those of the recipe as written (lr 0.01)"), "{said}");
    }
}

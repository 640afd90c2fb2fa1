//! The one-cycle schedule (Smith and Topin 2017, arXiv 1708.07120), with the phases and settings of PyTorch's OneCycleLR.

use std::f64::consts::PI;

use schema::{Range, section, words};

use super::decay::{AfterWarmup, Decay, ScheduleError, rounded};

/// How the rate goes from one end of a phase to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anneal {
    /// Along half a cosine.
    Cosine,
    /// Along a straight line.
    Linear,
}

words! { Anneal { Cosine = "cos", Linear = "linear" } }

section! {
    /// The rate climbs from 1 / div_factor of the target to the target, and falls to 1 / final_div_factor of where it began. It is its own
    /// warm-up. As PyTorch's OneCycleLR, but for the default of cycle_momentum.
    pub struct OneCycle {
        /// Share of the steps in which the rate climbs.
        optional pct_start: f64 = 0.3, in Range::OpenFraction(0.3);
        /// The first rate is the target divided by this.
        optional div_factor: f64 = 25.0, in Range::AtLeast(1.0);
        /// The last rate is the first divided by this.
        optional final_div_factor: f64 = 1e4, in Range::AtLeast(1.0);
        /// Along half a cosine, or a straight line.
        optional anneal: Anneal = Anneal::Cosine;
        /// Falls to the first rate in as many steps as it climbed, and only then below it.
        optional three_phase: bool = false;
        /// The momentum (adam, adamw, lamb, lion: beta1) falls from max_momentum to base_momentum where the rate climbs, and rises again.
        optional cycle_momentum: bool = false;
        /// Lowest momentum.
        optional base_momentum: f64 = 0.85, in Range::Fraction;
        /// Highest momentum.
        optional max_momentum: f64 = 0.95, in Range::Fraction;
    }
}

/// The values between which a phase goes.
type Ends = [f64; 2];

impl OneCycle {
    /// The value at a step of `length`, by the ends of the first phase, of the one in the middle, if there are three, and of the last.
    fn value(&self, at: AfterWarmup, [first, middle, last]: [Ends; 3]) -> f64 {
        let (steps, up) = (at.length as f64, self.pct_start() * at.length as f64);
        let mut phases = vec![(up - 1.0, first)];
        phases.extend(self.three_phase().then_some((2.0 * up - 2.0, middle)));
        phases.push((steps - 1.0, last));
        // what is left of a run that became longer is passed through more slowly; past the end, the last value
        let (step, mut start) = ((at.part * steps).min(steps - 1.0), 0.0);
        let whole = phases.len() - 1;
        let place = phases.iter().position(|(end, _)| step <= *end).unwrap_or(whole);
        if let Some((end, _)) = place.checked_sub(1).and_then(|before| phases.get(before)) {
            start = *end;
        }
        let (end, [from, to]) = phases[place];
        // a run of so few steps that a phase has no length stands at its end
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
            ", one cycle: from 1/{} of it up in {percent} % of the steps, down to 1/{}",
            rounded(first),
            rounded(last)
        )
    }

    fn check(&self, warmup_epochs: f64) -> Result<(), ScheduleError> {
        let wrong = |key, why: String| Err(ScheduleError { key, why });
        if warmup_epochs > 0.0 {
            return wrong("warmup_epochs", "one_cycle is its own warm-up; leave it out".into());
        }
        if self.three_phase() && self.pct_start() >= 0.5 {
            let pct = self.pct_start();
            return wrong("pct_start", format!("with three_phase two phases have this length: below 0.5, got {pct}"));
        }
        Ok(())
    }
}

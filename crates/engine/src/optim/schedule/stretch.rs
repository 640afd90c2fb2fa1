//! Extensions of a run whose decay ends with the run. If the run was extended before its end, the rest of the decay is stretched. If it was
//! extended after its end, its rates follow the longer schedule from then on.

use super::decay::ScheduleError;

/// Where a decay was stretched, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// From here on.
    at: u64,
    /// Its end as it was planned before.
    end: u64,
}

/// All of it, in the order in which it happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretches(Vec<Stretch>);

impl Stretches {
    /// From pairs of epochs as `schedule.stretched` has them.
    pub fn new(epochs: &[f64], steps_per_epoch: u64) -> Self {
        let steps = |epochs: f64| (epochs * steps_per_epoch as f64).round() as u64;
        Self(epochs.chunks_exact(2).map(|pair| Stretch { at: steps(pair[0]), end: steps(pair[1]) }).collect())
    }

    /// Returns the last step of the run as it was planned when the decay at `step` began. `end` is the current plan.
    pub fn planned(&self, step: u64, end: u64) -> u64 {
        let (stretches, end) = self.of(step, end);
        stretches.first().map_or(end, |first| first.end)
    }

    /// Returns the extensions of the decay that is active at `step`, and the last step of that decay.
    fn of(&self, step: u64, end: u64) -> (&[Stretch], u64) {
        let over = |stretch: &Stretch| stretch.at >= stretch.end;
        let begin = self.0.iter().rposition(|stretch| over(stretch) && step >= stretch.at).map_or(0, |last| last + 1);
        let own = &self.0[begin..];
        own.iter().position(over).map_or((own, end), |next| (&own[..next], own[next].end))
    }

    /// The part of a decay from step `from` to `end` that is over at `step`, from 0 to 1.
    pub fn part(&self, step: u64, mut from: u64, end: u64) -> f64 {
        let (stretches, end) = self.of(step, end);
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

/// Refuses a list that is none of pairs, or whose stretches do not follow one another.
pub(super) fn check(epochs: &[f64]) -> Result<(), ScheduleError> {
    let wrong = |why: String| Err(ScheduleError { key: "stretched", why });
    if !epochs.len().is_multiple_of(2) {
        return wrong(format!("expected pairs of epochs, as [40, 80], got {} numbers", epochs.len()));
    }
    match epochs.chunks_exact(2).find(|pair| !(0.0 < pair[0] && pair[0] <= pair[1])) {
        Some(pair) => wrong(format!("a decay that ends at epoch {} cannot be stretched at {}", pair[1], pair[0])),
        None if !epochs.iter().step_by(2).is_sorted() => wrong("the first numbers of its pairs must ascend".into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_cannot_be_are_refused() {
        for bad in [&[1.0][..], &[3.0, 2.0], &[0.0, 2.0], &[3.0, 5.0, 2.0, 9.0], &[f64::NAN, 1.0]] {
            assert_eq!(check(bad).unwrap_err().key, "stretched", "{bad:?}");
        }
    }
}

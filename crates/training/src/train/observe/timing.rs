//! Which rank the others wait for, and why.

use report::Advice;

/// Share of a step from which on the wait of others is worth a line.
const LARGE: f64 = 0.1;

/// One rank's milliseconds, of a step or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTiming {
    /// Waiting for its loader.
    pub data: f64,
    /// Waiting for the other ranks.
    pub comm: f64,
    /// The whole step.
    pub step: f64,
}

impl RankTiming {
    /// Without the wait for other ranks; its loader included.
    fn own(&self) -> f64 {
        (self.step - self.comm).max(0.0)
    }
}

/// Least, median (of an even number the lower one) and most.
pub fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.as_slice() {
        [] => [0.0; 3],
        all => [all[0], all[(all.len() - 1) / 2], all[all.len() - 1]],
    }
}

/// The ranks' sums over the steps of an epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochTiming {
    steps: u64,
    ranks: Vec<RankTiming>,
}

impl EpochTiming {
    /// Adds a step.
    pub fn add(&mut self, ranks: &[RankTiming]) {
        self.steps += 1;
        self.ranks.resize(ranks.len(), RankTiming::default());
        for (sum, timing) in self.ranks.iter_mut().zip(ranks) {
            *sum =
                RankTiming { data: sum.data + timing.data, comm: sum.comm + timing.comm, step: sum.step + timing.step };
        }
    }

    /// Names the rank with the longest steps of its own, and why; nothing for one rank. It is pressing where others lose a tenth of their
    /// time by it.
    pub fn slowest(&self) -> Option<Advice> {
        if self.ranks.len() < 2 || self.steps == 0 {
            return None;
        }
        let a_step = |sum: f64| sum / self.steps as f64;
        let (slow, timing) = self.ranks.iter().enumerate().max_by(|a, b| a.1.own().total_cmp(&b.1.own()))?;
        let [_, median, _] = spread(self.ranks.iter().map(|r| a_step(r.own())));
        let [_, data, _] = spread(self.ranks.iter().map(|r| a_step(r.data)));
        let (own, loader) = (a_step(timing.own()), a_step(timing.data));
        let reason = if loader - data > (own - median) / 2.0 && loader > data { "its loader" } else { "compute" };
        let others = spread(self.ranks.iter().map(|r| a_step(r.comm)))[2];
        let longest = spread(self.ranks.iter().map(|r| a_step(r.step)))[2];
        let text = format!(
            "slowest rank: {slow}, {own:.1} ms a step of its own (median of all {median:.1}), {loader:.1} of them for its loader; it \
             lags by {reason}, and others wait up to {others:.1} ms a step"
        );
        Some(Advice { text, pressing: others >= LARGE * longest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(data: f64, comm: f64, step: f64) -> RankTiming {
        RankTiming { data, comm, step }
    }

    #[test]
    fn the_slowest_rank_is_the_one_that_waits_least() {
        let mut epoch = EpochTiming::default();
        for _ in 0..2 {
            epoch.add(&[timing(1.0, 30.0, 100.0), timing(1.0, 5.0, 100.0), timing(1.0, 29.0, 100.0)]);
        }
        let Advice { text, pressing } = epoch.slowest().unwrap();
        assert!(pressing, "30 of 100 ms");
        assert!(
            text.starts_with("slowest rank: 1, 95.0 ms a step of its own (median of all 71.0), 1.0 of them"),
            "{text}"
        );
        assert!(text.contains("lags by compute") && text.ends_with("up to 30.0 ms a step"), "{text}");
    }

    #[test]
    fn a_slow_loader_is_named() {
        let mut epoch = EpochTiming::default();
        epoch.add(&[timing(1.0, 30.0, 100.0), timing(25.0, 5.0, 100.0)]);
        assert!(epoch.slowest().unwrap().text.contains("25.0 of them for its loader; it lags by its loader"));
        let mut even = EpochTiming::default();
        even.add(&[timing(1.0, 9.0, 100.0), timing(1.0, 5.0, 100.0)]);
        assert!(!even.slowest().unwrap().pressing, "9 of 100 ms");
        let mut alone = EpochTiming::default();
        alone.add(&[timing(1.0, 0.0, 9.0)]);
        assert_eq!(alone.slowest(), None);
    }

    #[test]
    fn spreads() {
        assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), [1.0, 2.0, 3.0]);
        assert_eq!(spread([4.0].into_iter()), [4.0; 3]);
    }
}

//! Times of steps and epochs: which rank is slowest and why, statistics of the loaders, and the record of a step for
//! the log.

use std::time::Duration;

use backend::{LossScale, LossSums};
use comm::{Comm, WorldInfo};
use loaders::LoaderStats;
use report::{Advice, Loading, Step};

use crate::error::Error;

/// The advice about the slowest rank is pressing if another rank waits for more than this fraction of a step.
const LARGE: f64 = 0.1;

/// A rank's times in milliseconds, for a step or summed over steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTiming {
    /// Time spent waiting for the loader.
    pub data: f64,
    /// Time spent waiting for other ranks.
    pub comm: f64,
    pub step: f64,
}

impl RankTiming {
    /// Returns the length of the step without the wait for other ranks. The wait for the loader is included.
    fn own(&self) -> f64 {
        (self.step - self.comm).max(0.0)
    }
}

/// Returns minimum, median and maximum. For an even number of values, the median is the lower one.
pub fn min_median_max(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.as_slice() {
        [] => [0.0; 3],
        all => [all[0], all[(all.len() - 1) / 2], all[all.len() - 1]],
    }
}

/// Each rank's times, summed over an epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochTiming {
    steps: u64,
    ranks: Vec<RankTiming>,
}

impl EpochTiming {
    pub fn add(&mut self, ranks: &[RankTiming]) {
        self.steps += 1;
        self.ranks.resize(ranks.len(), RankTiming::default());
        for (sum, timing) in self.ranks.iter_mut().zip(ranks) {
            *sum =
                RankTiming { data: sum.data + timing.data, comm: sum.comm + timing.comm, step: sum.step + timing.step };
        }
    }

    /// Names the rank with the longest steps, without its waits for other ranks, and the reason. Returns `None` for a
    /// single rank. The advice is pressing if another rank waits for at least a tenth of the longest step.
    pub fn slowest(&self) -> Option<Advice> {
        if self.ranks.len() < 2 || self.steps == 0 {
            return None;
        }
        let a_step = |sum: f64| sum / self.steps as f64;
        let (slow, timing) = self.ranks.iter().enumerate().max_by(|a, b| a.1.own().total_cmp(&b.1.own()))?;
        let [_, median, _] = min_median_max(self.ranks.iter().map(|r| a_step(r.own())));
        let [_, data, _] = min_median_max(self.ranks.iter().map(|r| a_step(r.data)));
        let (own, loader) = (a_step(timing.own()), a_step(timing.data));
        let reason =
            if loader - data > (own - median) / 2.0 && loader > data { "its loader" } else { "its computation" };
        let others = min_median_max(self.ranks.iter().map(|r| a_step(r.comm)))[2];
        let longest = min_median_max(self.ranks.iter().map(|r| a_step(r.step)))[2];
        let text = format!(
            "slowest rank: {slow}. Without waits for other ranks its steps take {own:.1} ms (median of all ranks {median:.1} ms), \
             including {loader:.1} ms of waiting for its loader. The cause is {reason}, and other ranks wait up to {others:.1} ms per step"
        );
        Some(Advice { text, pressing: others >= LARGE * longest })
    }
}

/// An optimizer step over all ranks.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// Number of the epoch, starting at 0.
    pub epoch: u32,
    /// Number of steps so far, including this one.
    pub step: u64,
    pub lr: f64,
    /// Length of the step on this rank.
    pub seconds: f64,
    /// Loss and correct predictions, summed over the images.
    pub loss: LossSums,
    /// Digest of the ids of all samples and of their rows in the workers' batches.
    pub samples: u64,
    /// Norm of the gradients, if clipping by norm is enabled.
    pub grad_norm: Option<f64>,
    /// Loss scale, if the device uses one.
    pub scale: Option<LossScale>,
    pub timings: Vec<RankTiming>,
}

impl StepRecord {
    pub fn event(&self) -> Step {
        let ranks = |of: fn(&RankTiming) -> f64| min_median_max(self.timings.iter().map(of));
        let (data_wait_ranks, comm_wait_ranks) = (ranks(|t| t.data), ranks(|t| t.comm));
        let count = self.loss.count.max(1) as f64;
        Step {
            step: self.step,
            epoch: self.epoch,
            loss: self.loss.loss / count,
            top1: self.loss.top1 as f64 / count,
            lr: self.lr,
            img_per_s: self.loss.count as f64 / self.seconds,
            data_wait_ms: data_wait_ranks[2],
            comm_wait_ms: comm_wait_ranks[2],
            step_ms: self.seconds * 1e3,
            data_wait_ranks,
            comm_wait_ranks,
            step_ranks: ranks(|t| t.step),
            samples: self.samples,
            grad_norm: self.grad_norm,
            loss_scale: self.scale.map(|scale| scale.scale),
            lost_steps: self.scale.map(|scale| scale.lost),
        }
    }
}

/// Loader statistics of an epoch, on one rank.
#[derive(Clone, Copy, Debug)]
pub struct EpochLoading {
    pub stats: LoaderStats,
    /// Number of skipped records on all ranks.
    pub skipped: u64,
    pub time: Duration,
    pub threads: usize,
    /// Number of steps in the epoch that this process trained.
    pub steps: u64,
    /// True if records are mapped from local files.
    pub local: bool,
}

/// An epoch with fewer steps gets no advice, because it does not predict the next one: files are read for the first
/// time, and caches are empty.
const LEAST_STEPS: u64 = 50;

/// The advice about the loader is pressing if a rank waits for data longer than this fraction of an epoch.
const LOADING_LARGE: f64 = 0.1;

/// Returns the statistics of the loader for which its rank waited longest. Also returns advice, unless the epoch was
/// too short. Collective.
pub fn gather(comm: &Comm, world: &WorldInfo, epoch: EpochLoading) -> Result<(Loading, Option<Advice>), Error> {
    let ranks = world.size;
    let all = match ranks {
        1 => vec![epoch.stats],
        _ => comm.gather_all("gathering of loader statistics", &epoch.stats)?,
    };
    let slowest = (0..ranks).max_by_key(|&r| (all[r].wait, std::cmp::Reverse(r))).unwrap_or(0);
    let whose = if ranks > 1 { format!("loader of rank {slowest}") } else { "loader".into() };
    Ok((loading(&all[slowest], epoch.skipped), advice(&whose, &all[slowest], &epoch)))
}

fn advice(whose: &str, stats: &LoaderStats, epoch: &EpochLoading) -> Option<Advice> {
    let text = || format!("{whose}: {}", stats.advice(epoch.time, epoch.threads, epoch.local));
    let pressing = stats.wait.as_secs_f64() >= LOADING_LARGE * epoch.time.as_secs_f64();
    (epoch.steps >= LEAST_STEPS).then(|| Advice { text: text(), pressing })
}

fn loading(stats: &LoaderStats, skipped: u64) -> Loading {
    let times = loaders::bench::StageTimes::new(stats);
    Loading {
        skipped,
        data_wait_s: stats.wait.as_secs_f64(),
        queue_depth: stats.depth(),
        bytes: stats.bytes,
        read_us: times.read_us,
        decode_us: times.decode_us,
        transform_us: times.transform_us,
        slot_wait_us: times.slot_wait_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use loaders::stats::Stages;

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
        assert!(text.starts_with("slowest rank: 1"), "{text}");
        support::mentions(text, &[" 95.0 ms", " 71.0 ms", " 1.0 ms", "its computation", " 30.0 ms"]);
    }

    #[test]
    fn a_slow_loader_is_named() {
        let mut epoch = EpochTiming::default();
        epoch.add(&[timing(1.0, 30.0, 100.0), timing(25.0, 5.0, 100.0)]);
        let Advice { text, .. } = epoch.slowest().unwrap();
        assert!(text.contains(" 25.0 ms") && text.contains("is its loader"), "{text}");
        let mut even = EpochTiming::default();
        even.add(&[timing(1.0, 9.0, 100.0), timing(1.0, 5.0, 100.0)]);
        assert!(!even.slowest().unwrap().pressing, "9 of 100 ms");
        let mut alone = EpochTiming::default();
        alone.add(&[timing(1.0, 0.0, 9.0)]);
        assert_eq!(alone.slowest(), None);
    }

    #[test]
    fn spreads() {
        assert_eq!(min_median_max([3.0, 1.0, 2.0].into_iter()), [1.0, 2.0, 3.0]);
        assert_eq!(min_median_max([4.0].into_iter()), [4.0; 3]);
    }

    #[test]
    fn times_are_per_image() {
        let ms = Duration::from_millis;
        let stages = Stages { read: ms(10), decode: ms(2000), transform: ms(30), slots: ms(4) };
        let stats =
            LoaderStats { wait: ms(1500), images: 1000, bytes: 7, skipped: 3, batches: 2000, queue: 2500, stages };
        let sent: LoaderStats = serde_json::from_str(&serde_json::to_string(&stats).unwrap()).unwrap();
        assert_eq!(sent, stats);
        let shown = loading(&stats, 7);
        let epoch = |steps| EpochLoading { stats, skipped: 0, time: ms(2000), threads: 1, steps, local: true };
        assert_eq!(advice("loader", &stats, &epoch(49)), None);
        let Advice { text, pressing } = advice("loader", &stats, &epoch(50)).unwrap();
        assert!(text.starts_with("loader: decode-bound: ") && pressing, "1.5 s of 2: {text}");
        let calm = LoaderStats { wait: ms(199), ..stats };
        assert!(!advice("loader", &calm, &epoch(50)).unwrap().pressing);
        assert_eq!((shown.skipped, shown.decode_us, shown.data_wait_s, shown.queue_depth), (7, 2000.0, 1.5, 1.25));
    }
}

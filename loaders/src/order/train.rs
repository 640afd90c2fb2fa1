//! The training order: one keyed permutation of the split per epoch, divided among logical workers and then among
//! ranks.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use crate::order::balanced::Balanced;
use crate::order::job::{Job, Order, worker_positions};
use crate::order::permutation::Permutation;
use crate::order::window::{Distribution, Windows};

/// The training order. Each step has one job for each of the rank's own workers, in the order of their numbers. The
/// last step of an epoch may be short.
///
/// By default, an epoch contains every sample once, in the order of the epoch's permutation. [`Self::shuffled`],
/// [`Self::balanced`] and [`Self::repeated`] change this.
#[derive(Debug, Clone)]
pub struct TrainOrder {
    seed: u64,
    n: u64,
    batch: u64,
    workers: usize,
    mine: Range<usize>,
    epochs: u32,
    epoch: u32,
    step: u64,
    worker: usize,
    mixing: Mixing,
    /// The permutation of the current epoch. Windows have their own.
    permutation: Permutation,
    /// Number of consecutive copies of each sample.
    repeats: u32,
}

#[derive(Debug, Clone)]
enum Mixing {
    Full,
    Balanced(Arc<Balanced>),
    Window(Windows),
}

impl TrainOrder {
    /// Creates the order for `n` samples in global batches of `batch`, divided among `workers`. The range `mine` has
    /// this rank's workers (see [`rank_workers`](super::rank_workers)). The order begins at `start` = (epoch, step
    /// within the epoch) and ends after `epochs` epochs.
    ///
    /// # Panics
    ///
    /// Panics if `batch` or `workers` is 0, or if `mine` exceeds `workers`.
    pub fn new(
        seed: u64,
        n: u64,
        batch: usize,
        workers: usize,
        mine: Range<usize>,
        start: (u32, u64),
        epochs: u32,
    ) -> Self {
        assert!(batch > 0 && workers > 0, "batch and workers must not be 0");
        assert!(mine.end <= workers, "no worker {} of {workers}", mine.end);
        let (epoch, step) = start;
        Self {
            seed,
            n,
            batch: batch as u64,
            workers,
            epochs,
            epoch,
            step,
            worker: mine.start,
            mine,
            mixing: Mixing::Full,
            permutation: Permutation::new(seed, epoch, n),
            repeats: 1,
        }
    }

    /// Selects how samples are mixed. `counts` are the numbers of samples of the shards in order. Their sum must be
    /// `n`.
    ///
    /// # Panics
    ///
    /// Panics if the counts have a different sum, or for windows of 0 shards.
    pub fn shuffled(mut self, shuffle: Shuffle, counts: &[u64]) -> Self {
        assert_eq!(counts.iter().sum::<u64>(), self.n, "samples of all shards");
        self.permutation = Permutation::new(self.seed, self.epoch, self.n);
        self.mixing = match shuffle {
            Shuffle::Full => Mixing::Full,
            Shuffle::Window(k) => {
                let distribution = Distribution { batch: self.batch, workers: self.workers, mine: self.mine.clone() };
                Mixing::Window(Windows::new(self.seed, k, counts, distribution, self.epoch..self.epochs))
            }
        };
        self
    }

    /// Draws an epoch's samples from a balanced order, which must have as many draws as there are samples.
    ///
    /// # Panics
    ///
    /// Panics if that order has a different number of draws, or if no sample has a class.
    pub fn balanced(mut self, balanced: Arc<Balanced>) -> Self {
        assert!(balanced.len() == self.n && !balanced.is_empty(), "samples with classes");
        self.mixing = Mixing::Balanced(balanced);
        self
    }

    /// Repeats each sample `repeats` times in a row, each time with its own random draws. An epoch still has the same
    /// number of samples: it uses the first 1 / `repeats` of its permutation.
    ///
    /// # Panics
    ///
    /// Panics if `repeats` is 0, or if it is above 1 for windows of shards.
    pub fn repeated(mut self, repeats: u32) -> Self {
        assert!(repeats > 0, "repeats must be at least 1");
        assert!(
            repeats == 1 || !matches!(self.mixing, Mixing::Window(_)),
            "samples cannot be repeated with windows of shards"
        );
        self.repeats = repeats;
        if let Mixing::Balanced(balanced) = &mut self.mixing {
            *balanced = Arc::new(balanced.with_draws(self.n.div_ceil(u64::from(repeats))));
            self.permutation = Permutation::new(self.seed, self.epoch, balanced.len());
        }
        self
    }

    /// Steps per epoch, including a short last step.
    pub fn steps_per_epoch(&self) -> u64 {
        self.n.div_ceil(self.batch)
    }

    /// Advances to the next step after the last worker, and to the next epoch after the last step.
    fn advance(&mut self) {
        if self.worker == self.mine.end {
            self.worker = self.mine.start;
            self.step += 1;
        }
        if self.step >= self.steps_per_epoch() && self.epoch < self.epochs {
            self.step = 0;
            self.epoch += 1;
            self.permutation = self.permutation.of_epoch(self.epoch);
            if let Mixing::Window(windows) = &mut self.mixing {
                windows.start_epoch(self.epoch);
            }
        }
    }
}

impl Order for TrainOrder {
    fn fill(&mut self, job: &mut Job) -> bool {
        if self.mine.is_empty() || self.n == 0 {
            return false;
        }
        self.advance();
        if self.epoch >= self.epochs {
            return false;
        }
        let first = self.step * self.batch;
        let samples = self.batch.min(self.n - first) as usize;
        let positions = worker_positions(samples, self.worker, self.workers);
        (job.epoch, job.step, job.worker) = (self.epoch, self.step, self.worker);
        job.ids.clear();
        job.copies.clear();
        job.ahead.clear();
        let repeats = u64::from(self.repeats);
        let repeat = |p: usize| ((first + p as u64) % repeats) as u16;
        let permutation = self.permutation;
        match &mut self.mixing {
            Mixing::Full if repeats == 1 => {
                permutation.extend(first + positions.start as u64..first + positions.end as u64, &mut job.ids);
            }
            Mixing::Full => {
                job.ids.extend(positions.clone().map(|p| permutation.get((first + p as u64) / repeats)));
                job.copies.extend(positions.map(repeat));
            }
            Mixing::Balanced(balanced) => {
                for p in positions {
                    let (turn, id) = balanced.draw(self.epoch, permutation.get((first + p as u64) / repeats));
                    job.ids.push(id);
                    job.copies.push((turn as u16).wrapping_mul(self.repeats as u16).wrapping_add(repeat(p)));
                }
            }
            Mixing::Window(windows) => windows.fill(self.step, positions.len(), job),
        }
        self.worker += 1;
        true
    }

    fn largest(&self) -> usize {
        (self.batch as usize).div_ceil(self.workers)
    }
}

/// How the samples of an epoch are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shuffle {
    /// One permutation of the whole split. Any sample may follow any other.
    #[default]
    Full,
    /// Each worker mixes this many shards at a time.
    Window(usize),
}

impl Shuffle {
    /// Returns the number of shards that a rank with this many workers uses at the same time, for
    /// [`Options::open`](crate::Options::open). For each worker, these are the shards of its current and next windows,
    /// and of the window before, which batches in progress may still need. 0 means all shards.
    pub fn open(&self, workers: usize) -> usize {
        match self {
            Self::Full => 0,
            Self::Window(k) => workers.saturating_mul(k.saturating_mul(3)),
        }
    }
}

impl FromStr for Shuffle {
    type Err = String;

    /// Parses `full` or `window(k)` with k at least 1.
    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix("window(").and_then(|rest| rest.strip_suffix(')'));
        match inner.map(|k| k.trim().parse()) {
            Some(Ok(k)) if k > 0 => Ok(Self::Window(k)),
            None if text == "full" => Ok(Self::Full),
            _ => Err(format!(
                "expected \"full\" or \"window(k)\" with k >= 1 shards, for example \"window(8)\", got \"{text}\""
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{jobs, rank_workers};
    use std::collections::BTreeSet;

    /// Asserts that any number of ranks together make these jobs of four workers.
    fn assert_ranks_make(whole: &[Job], order: impl Fn(Range<usize>) -> TrainOrder) {
        for ranks in 1..=4 {
            let mut parts: Vec<_> = (0..ranks).flat_map(|rank| jobs(order(rank_workers(rank, ranks, 4)))).collect();
            parts.sort_by_key(|job| (job.epoch, job.step, job.worker));
            assert_eq!(parts, whole);
        }
    }

    #[test]
    fn ranks_together_make_the_steps_of_one_rank() {
        let order = |mine| TrainOrder::new(9, 23, 10, 4, mine, (0, 0), 2);
        let whole = jobs(order(0..4));
        assert_eq!(whole.len(), 2 * 3 * 4);
        assert_ranks_make(&whole, order);
        for epoch in 0..2 {
            let mut ids: Vec<_> =
                whole.iter().filter(|job| job.epoch == epoch).flat_map(|job| job.ids.clone()).collect();
            ids.sort();
            assert_eq!(ids, (0..23).collect::<Vec<_>>());
        }
        // The last step has 3 samples for 4 workers.
        let last: Vec<_> = whole[8..12].iter().map(|job| job.ids.len()).collect();
        assert_eq!(last, [0, 1, 1, 1]);
    }

    #[test]
    fn balanced_order_is_independent_of_ranks_and_can_resume() {
        let labels: Vec<_> = (0..23).map(|id| Some(u32::from(id > 3))).collect();
        let balanced = Arc::new(Balanced::new(9, &labels));
        let order = |mine, start| TrainOrder::new(9, 23, 10, 4, mine, start, 3).balanced(balanced.clone());
        let whole = jobs(order(0..4, (0, 0)));
        assert_ranks_make(&whole, |mine| order(mine, (0, 0)));
        assert_eq!(jobs(order(0..4, (1, 1))), whole[16..]);
        // all copies of an image in an epoch have their own random draws
        for epoch in 0..3 {
            let of = |job: &&Job| job.epoch == epoch;
            let keys = whole.iter().filter(of).flat_map(|job| (0..job.ids.len()).map(|i| job.key(i)));
            assert_eq!(keys.collect::<BTreeSet<_>>().len(), 23);
        }
        let repeated = jobs(order(0..4, (0, 0)).repeated(2));
        let keys = repeated[..12].iter().flat_map(|job| (0..job.ids.len()).map(|i| job.key(i)));
        assert_eq!(keys.collect::<BTreeSet<_>>().len(), 23, "equal keys");
        // The epoch has 12 draws with two copies each. Each class gets 6 draws.
        let ids: Vec<u64> = repeated[..12].iter().flat_map(|job| job.ids.clone()).collect();
        assert_eq!(ids.iter().filter(|id| **id < 4).count().div_ceil(2), 6, "{ids:?}");
        let rare = |epoch| {
            let ids = whole.iter().filter(|job| job.epoch == epoch).flat_map(|job| &job.ids);
            ids.filter(|id| **id < 4).count()
        };
        assert_eq!([0, 1, 2].map(rare), [12, 12, 12], "of 23 draws an epoch");
    }

    #[test]
    fn an_order_started_later_skips_the_finished_steps() {
        let order = |start| TrainOrder::new(9, 23, 10, 2, 0..2, start, 3);
        let whole = jobs(order((0, 0)));
        for (skipped, start) in [(2, (0, 1)), (6, (1, 0)), (6, (0, 3)), (10, (1, 2))] {
            assert_eq!(jobs(order(start)), whole[skipped..]);
        }
        assert_eq!(jobs(order((3, 0))), []);
        assert_eq!(jobs(order((2, 3))), []);
    }

    /// Each position has the id and copy from the epoch's permutation, for any number of ranks and any first step.
    #[test]
    fn repeated_samples_are_consecutive_with_distinct_keys() {
        let order = |mine, start| TrainOrder::new(9, 23, 10, 4, mine, start, 2).repeated(3);
        let keys = |jobs: Vec<Job>| -> Vec<(u32, u64, u64)> {
            let mut all: Vec<_> = jobs
                .iter()
                .flat_map(|job| {
                    let samples = 10.min(23 - 10 * job.step) as usize;
                    let first = 10 * job.step + worker_positions(samples, job.worker, 4).start as u64;
                    (0..job.ids.len()).map(move |i| (job.epoch, first + i as u64, job.key(i)))
                })
                .collect();
            all.sort();
            all
        };
        let whole = keys(jobs(order(0..4, (0, 0))));
        assert_eq!(whole.len(), 46);
        for (i, (epoch, position, key)) in whole.iter().enumerate() {
            assert_eq!((*epoch, *position), (i as u32 / 23, i as u64 % 23));
            let permutation = Permutation::new(9, *epoch, 23);
            assert_eq!(*key, permutation.get(position / 3) | (position % 3) << 48);
        }
        for ranks in 2..=4 {
            let parts = (0..ranks).flat_map(|rank| jobs(order(rank_workers(rank, ranks, 4), (0, 0)))).collect();
            assert_eq!(keys(parts), whole);
        }
        assert_eq!(keys(jobs(order(0..4, (0, 1)))), whole[10..]);
        assert_eq!(keys(jobs(order(0..4, (1, 2)))), whole[43..]);
        let once = jobs(TrainOrder::new(9, 23, 10, 4, 0..4, (0, 0), 1));
        assert!(once.iter().all(|job| (0..job.ids.len()).all(|i| job.key(i) == job.ids[i])));
    }

    #[test]
    fn an_order_without_samples_or_workers_is_empty() {
        assert_eq!(jobs(TrainOrder::new(1, 0, 4, 1, 0..1, (0, 0), 5)), []);
        assert_eq!(jobs(TrainOrder::new(1, 9, 4, 2, 1..1, (0, 0), 5)), []);
    }

    #[test]
    fn shuffle_is_parsed_from_the_recipe() {
        assert_eq!("full".parse(), Ok(Shuffle::Full));
        assert_eq!("window(8)".parse(), Ok(Shuffle::Window(8)));
        for wrong in ["window", "window(0)", "window(-1)", "window(x)", "Full", "", "window(8"] {
            let error = wrong.parse::<Shuffle>().unwrap_err();
            assert!(error.contains("window(k)") && error.ends_with(&format!("got \"{wrong}\"")), "{error}");
        }
    }

    #[test]
    fn open_shards_depend_on_the_window_and_the_workers() {
        assert_eq!((Shuffle::Full.open(3), Shuffle::Window(4).open(3)), (0, 36));
        assert_eq!(Shuffle::Window(usize::MAX).open(2), usize::MAX);
    }
}

//! Windows of shards: an order for storage where few open files and long reads are fast.
//!
//! Each epoch permutes the shards. The samples of all shards in this sequence are cut into one run per worker. The
//! length of a run is the number of samples that the full order distributes to the worker in the whole epoch. So a
//! worker has the same number of samples in each step as in the full order. A cut can divide a shard. A worker reads
//! the pieces of its run (whole or divided shards) k at a time, and permutes all samples of such a window. So it mixes
//! over k shards, not over the whole split, and shards should be filled in random order, as `trireme data convert`
//! does.

use std::ops::Range;

use crate::order::job::{Job, worker_positions};
use crate::order::permutation::Permutation;

/// The runs of a rank's workers in an epoch.
#[derive(Debug, Clone)]
struct Epoch {
    epoch: u32,
    runs: Vec<Run>,
}

/// How samples are divided among workers.
#[derive(Debug, Clone)]
pub(crate) struct Distribution {
    /// Number of samples per step, over all workers.
    pub batch: u64,
    pub workers: usize,
    /// The logical workers of this rank.
    pub mine: Range<usize>,
}

/// The window order of a rank's workers. It stores two numbers per shard, and the pieces of two epochs.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    seed: u64,
    k: usize,
    /// Id of each shard's first sample, followed by the number of samples.
    firsts: Vec<u64>,
    distribution: Distribution,
    epochs: u32,
    current: Epoch,
    /// The epoch after `current`. It is planned when its first shards should be read ahead.
    next: Option<Epoch>,
    /// For each worker of the rank, true until its first batch is requested. The shards of its first window are
    /// added to that batch's [`Job::ahead`].
    fresh: Vec<bool>,
}

impl Windows {
    /// Creates windows of `k` shards, starting with the first of `epochs`. The shards have `counts` samples.
    ///
    /// # Panics
    ///
    /// Panics if `k` is 0.
    pub(crate) fn new(seed: u64, k: usize, counts: &[u64], distribution: Distribution, epochs: Range<u32>) -> Self {
        assert!(k > 0, "a window needs at least one shard");
        let mut firsts = vec![0];
        counts.iter().for_each(|count| firsts.push(firsts[firsts.len() - 1] + count));
        let current = Epoch { epoch: epochs.start, runs: Vec::new() };
        let fresh = vec![true; distribution.mine.len()];
        let mut windows = Self { seed, k, firsts, distribution, epochs: epochs.end, current, next: None, fresh };
        windows.current = windows.plan(epochs.start);
        windows
    }

    pub(crate) fn start_epoch(&mut self, epoch: u32) {
        self.current = match self.next.take() {
            Some(next) if next.epoch == epoch => next,
            _ => self.plan(epoch),
        };
    }

    /// Adds to `job` the next `count` sample ids of worker `job.worker` in step `step` of the current epoch, and the
    /// shards to read ahead.
    pub(crate) fn fill(&mut self, step: u64, count: usize, job: &mut Job) {
        let place = job.worker - self.distribution.mine.start;
        let share =
            worker_positions(self.distribution.batch as usize, job.worker, self.distribution.workers).len() as u64;
        let mut at = step * share;
        let end = at + count as u64;
        while at < end {
            let run = &self.current.runs[place];
            let pieces = run.window(at, self.k);
            let window = run.samples(&pieces);
            let domain = ((run.start + window.start) as u32).wrapping_add(1);
            let mixed = Permutation::for_domain(self.seed, self.current.epoch, domain, window.end - window.start);
            let until = end.min(window.end);
            job.ids.extend((at..until).map(|i| run.id(&pieces, window.start + mixed.get(i - window.start))));
            let fresh = std::mem::take(&mut self.fresh[place]);
            if fresh {
                job.ahead.extend(run.pieces[pieces.clone()].iter().map(|piece| piece.shard));
            }
            if fresh || at == window.start {
                self.announce(place, pieces.end, &mut job.ahead);
            }
            at = until;
        }
    }

    /// Adds to `ahead` the shards of the window that starts with piece `from` in the run of the worker with index
    /// `place`. If the run has no such piece, adds the shards of the worker's first window in the next epoch.
    fn announce(&mut self, place: usize, from: usize, ahead: &mut Vec<usize>) {
        let next = self.current.epoch + 1;
        let run = &self.current.runs[place];
        let pieces = if from < run.pieces.len() {
            &run.pieces[from..]
        } else if next < self.epochs {
            if self.next.as_ref().is_none_or(|made| made.epoch != next) {
                self.next = Some(self.plan(next));
            }
            self.next.as_ref().map_or(&[][..], |made| &made.runs[place].pieces)
        } else {
            &[]
        };
        ahead.extend(pieces.iter().take(self.k).map(|piece| piece.shard));
    }

    /// Divides an epoch's shards among this rank's workers.
    fn plan(&self, epoch: u32) -> Epoch {
        let shards = self.firsts.len() - 1;
        let mut runs: Vec<Run> = self.distribution.mine.clone().map(|worker| self.run(worker)).collect();
        let order = Permutation::new(self.seed, epoch, shards as u64);
        let (mut place, mut position) = (0, 0);
        for shard in (0..shards as u64).map(|i| order.get(i) as usize) {
            let end = position + self.firsts[shard + 1] - self.firsts[shard];
            while let Some(run) = runs.get_mut(place) {
                let (from, to) = (run.start.max(position), (run.start + run.len).min(end));
                if from < to {
                    let first = self.firsts[shard] + from - position;
                    run.pieces.push(Piece { shard, first, before: from - run.start });
                }
                if run.start + run.len > end {
                    break;
                }
                place += 1;
            }
            position = end;
        }
        Epoch { epoch, runs }
    }

    /// Computes where a worker's run starts and how long it is: its shares in all full steps and in a short last step.
    fn run(&self, worker: usize) -> Run {
        let n = self.firsts[self.firsts.len() - 1];
        let Distribution { batch, workers, .. } = self.distribution;
        let (steps, rest) = (n / batch, n % batch);
        let cut = |worker: usize| {
            let of = |b: u64| (worker as u128 * u128::from(b) / workers as u128) as u64;
            steps * of(batch) + of(rest)
        };
        Run { start: cut(worker), len: cut(worker + 1) - cut(worker), pieces: Vec::new() }
    }
}

/// Consecutive samples of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub shard: usize,
    /// The piece's first sample id.
    pub first: u64,
    /// How many samples the worker's run has before this piece.
    pub before: u64,
}

/// The samples that a worker reads in an epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    /// Position of the first sample in the epoch. It also distinguishes the permutations of this run's windows from
    /// other workers' windows.
    pub start: u64,
    pub len: u64,
    pub pieces: Vec<Piece>,
}

impl Run {
    /// Returns the pieces of the window that contains sample `at` of the run.
    pub fn window(&self, at: u64, k: usize) -> Range<usize> {
        let piece = self.pieces.partition_point(|piece| piece.before <= at) - 1;
        let first = piece / k * k;
        first..self.pieces.len().min(first + k)
    }

    /// Returns the range of positions that the samples of these pieces have in the run.
    pub fn samples(&self, pieces: &Range<usize>) -> Range<u64> {
        self.pieces[pieces.start].before..self.pieces.get(pieces.end).map_or(self.len, |piece| piece.before)
    }

    /// Returns the id of the sample at position `at` of the run, which must be in one of these pieces.
    pub fn id(&self, pieces: &Range<usize>, at: u64) -> u64 {
        let pieces = &self.pieces[pieces.clone()];
        let piece = pieces[pieces.partition_point(|piece| piece.before <= at) - 1];
        piece.first + at - piece.before
    }
}

// Compares window orders with the full order: they have the same steps and contain every sample once, but use few
// shards at a time.
#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::Range;

    use super::super::{Job, Order, Shuffle, TrainOrder, jobs, rank_workers};

    const SEED: u64 = 11;

    fn order(
        counts: &[u64],
        k: usize,
        batch: usize,
        workers: usize,
        mine: Range<usize>,
        start: (u32, u64),
    ) -> TrainOrder {
        let n = counts.iter().sum();
        TrainOrder::new(SEED, n, batch, workers, mine, start, 3).shuffled(Shuffle::Window(k), counts)
    }

    /// Returns the epoch, step, worker and samples of each job, without the shards to read ahead.
    fn content(jobs: &[Job]) -> Vec<(u32, u64, usize, Vec<u64>)> {
        jobs.iter().map(|job| (job.epoch, job.step, job.worker, job.ids.clone())).collect()
    }

    fn shard_of(counts: &[u64], id: u64) -> usize {
        let ends = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        ends.take_while(|&end| end <= id).count()
    }

    /// Returns settings with even, uneven, empty and tiny shards, fewer shards than workers, and batches that do not
    /// divide evenly among the workers.
    fn settings() -> Vec<(Vec<u64>, usize, usize, usize)> {
        let mut all = Vec::new();
        for counts in [vec![10; 12], vec![3, 0, 40, 1, 1, 17, 9, 0, 5], vec![7], vec![1; 30], vec![100, 3]] {
            for k in [1, 2, 5, 100] {
                for (batch, workers) in [(4, 1), (7, 3), (8, 8), (50, 4), (200, 6)] {
                    all.push((counts.clone(), k, batch, workers));
                }
            }
        }
        all
    }

    #[test]
    fn each_epoch_has_every_sample_once_in_the_same_step_sizes() {
        for (counts, k, batch, workers) in settings() {
            let n: u64 = counts.iter().sum();
            let got = jobs(order(&counts, k, batch, workers, 0..workers, (0, 0)));
            let full = jobs(TrainOrder::new(SEED, n, batch, workers, 0..workers, (0, 0), 3));
            let shape = |jobs: &[Job]| -> Vec<_> {
                jobs.iter().map(|job| (job.epoch, job.step, job.worker, job.ids.len())).collect()
            };
            assert_eq!(shape(&got), shape(&full), "{counts:?}, {k}, {batch}, {workers}");
            for epoch in 0..3 {
                let of_epoch = got.iter().filter(|job| job.epoch == epoch);
                let mut ids: Vec<u64> = of_epoch.flat_map(|job| job.ids.clone()).collect();
                ids.sort_unstable();
                assert_eq!(ids, (0..n).collect::<Vec<_>>(), "epoch {epoch}: {counts:?}, {k}, {batch}, {workers}");
            }
        }
    }

    #[test]
    fn jobs_of_all_ranks_equal_the_jobs_of_one_rank() {
        for (counts, k, batch, workers) in settings() {
            let whole = content(&jobs(order(&counts, k, batch, workers, 0..workers, (0, 0))));
            for ranks in 1..=workers {
                let mut parts: Vec<_> = (0..ranks)
                    .flat_map(|r| {
                        content(&jobs(order(&counts, k, batch, workers, rank_workers(r, ranks, workers), (0, 0))))
                    })
                    .collect();
                parts.sort();
                assert_eq!(parts, whole, "{ranks} ranks: {counts:?}, {k}, {batch}, {workers}");
            }
        }
    }

    #[test]
    fn an_order_started_later_skips_the_finished_steps() {
        for (counts, k, batch, workers) in settings() {
            let whole = content(&jobs(order(&counts, k, batch, workers, 0..workers, (0, 0))));
            let starts: BTreeSet<_> = whole.iter().map(|job| (job.0, job.1)).collect();
            for start in starts.into_iter().step_by(7) {
                let rest: Vec<_> = whole.iter().filter(|job| (job.0, job.1) >= start).cloned().collect();
                assert_eq!(content(&jobs(order(&counts, k, batch, workers, 0..workers, start))), rest);
            }
        }
    }

    /// Resuming late takes no longer than resuming early: only that epoch's shards are divided among the workers again.
    #[test]
    fn resuming_at_a_late_step_takes_no_longer() {
        let counts = vec![1 << 40; 1000];
        let last = (1000u64 << 40) / 256 - 1;
        let mut late = order(&counts, 8, 256, 4, 0..4, (2, last));
        let mut job = Job::default();
        assert!(late.fill(&mut job) && job.step == last && job.ids.len() == 64);
    }

    #[test]
    fn a_worker_reads_few_shards_at_a_time_and_knows_them_ahead() {
        let counts = vec![100; 40];
        let (k, batch, workers) = (4, 20, 4);
        for worker in 0..workers {
            let got = jobs(order(&counts, k, batch, workers, worker..worker + 1, (0, 0)));
            let mut announced = BTreeSet::new();
            for epoch in 0..3 {
                let ids: Vec<u64> =
                    got.iter().filter(|job| job.epoch == epoch).flat_map(|job| job.ids.clone()).collect();
                let shards: BTreeSet<_> = ids.iter().map(|&id| shard_of(&counts, id)).collect();
                assert!(shards.len() <= 40 / workers + 1, "worker {worker} opens {} shards", shards.len());
                for window in ids.chunks(100 * k) {
                    let shards: BTreeSet<_> = window.iter().map(|&id| shard_of(&counts, id)).collect();
                    assert!(shards.len() <= k, "{shards:?}");
                }
            }
            for job in &got {
                announced.extend(job.ahead.iter().copied());
                assert!(job.ids.iter().all(|&id| announced.contains(&shard_of(&counts, id))), "{job:?}");
            }
            let all: usize = got.iter().map(|job| job.ahead.len()).sum();
            assert!(all <= 3 * (40 / workers + 1) + k, "{all} announcements");
        }
    }

    /// Within a window of m = k * 100 samples, the order is a full permutation. Neighbours come from the same shard
    /// with probability 1 / k, and their mean distance is m / 3. So the effective window is m.
    #[test]
    fn the_effective_window_is_k_shards() {
        let counts = vec![100; 64];
        for k in [1usize, 4, 16] {
            let ids: Vec<u64> =
                jobs(order(&counts, k, 32, 1, 0..1, (0, 0))).iter().take(200).flat_map(|job| job.ids.clone()).collect();
            let (mut same, mut pairs, mut distance) = (0, 0, 0.0);
            for window in ids.chunks(100 * k) {
                let shards: Vec<usize> = window.iter().map(|&id| shard_of(&counts, id)).collect();
                let mut number = BTreeMap::new();
                shards.iter().for_each(|shard| {
                    let next = number.len() as u64;
                    number.entry(*shard).or_insert(next);
                });
                // The sample's position if the window's shards are joined in order.
                let place = |i: usize| (number[&shards[i]] * 100 + window[i] % 100) as f64;
                for i in 1..window.len() {
                    same += usize::from(shards[i] == shards[i - 1]);
                    distance += (place(i) - place(i - 1)).abs();
                    pairs += 1;
                }
            }
            let (same, distance) = (same as f64 / pairs as f64, distance / pairs as f64 / (100 * k) as f64);
            assert!((same - 1.0 / k as f64).abs() < 0.02, "k {k}: {same} of the neighbours are of one shard");
            assert!((distance - 1.0 / 3.0).abs() < 0.02, "k {k}: neighbours are {distance} of a window apart");
        }
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let counts = vec![50; 20];
        let ids = |seed: u64, epoch: u32| -> Vec<u64> {
            let order = TrainOrder::new(seed, 1000, 10, 2, 0..2, (epoch, 0), epoch + 1);
            jobs(order.shuffled(Shuffle::Window(4), &counts)).iter().flat_map(|job| job.ids.clone()).collect()
        };
        let one = ids(1, 0);
        for other in [ids(1, 1), ids(2, 0), (0..1000).collect()] {
            let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 12, "{same} places agree");
        }
        // The shards of a worker differ too.
        let first = |ids: &[u64]| ids.iter().take(10).map(|&id| shard_of(&counts, id)).collect::<BTreeSet<_>>();
        assert_ne!(first(&one), first(&ids(1, 1)));
    }
}

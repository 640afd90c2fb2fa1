//! Windows of shards: the order for storage that favours few open files and long reads.
//!
//! Each epoch permutes the shards. Their samples, end to end in that order, are cut into one run per worker, as long as the worker's
//! shares of all steps together, so the steps are those of the full order; a shard on a cut is divided. A worker takes the pieces of
//! its run k at a time and permutes all samples of such a window. It mixes over k shards, not over the split: shards should be filled
//! in random order, as `trireme data convert` does.

use std::ops::Range;

use crate::order::job::Job;
use crate::order::permutation::Permutation;
use crate::order::train::worker_positions;

/// The runs of a rank's workers in one epoch.
#[derive(Debug, Clone)]
struct Epoch {
    epoch: u32,
    runs: Vec<Run>,
}

/// How samples are dealt to workers.
#[derive(Debug, Clone)]
pub(crate) struct Deal {
    /// Samples of a step.
    pub batch: u64,
    /// Workers in all.
    pub workers: usize,
    /// The workers of this rank.
    pub mine: Range<usize>,
}

/// The order of a rank's workers. Memory: two numbers a shard, and the pieces of two epochs.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    seed: u64,
    k: usize,
    /// Id of each shard's first sample, then the number of samples.
    firsts: Vec<u64>,
    deal: Deal,
    epochs: u32,
    current: Epoch,
    /// The epoch after it, planned when its first shards are to be read ahead.
    next: Option<Epoch>,
    /// For each of the rank's workers, whether nothing was requested yet: its first window was not announced either.
    fresh: Vec<bool>,
}

impl Windows {
    /// Windows of `k` of the shards with `counts` samples, from the first of `epochs`.
    ///
    /// # Panics
    /// If `k` is 0.
    pub(crate) fn new(seed: u64, k: usize, counts: &[u64], deal: Deal, epochs: Range<u32>) -> Self {
        assert!(k > 0, "a window needs a shard");
        let mut firsts = vec![0];
        counts.iter().for_each(|count| firsts.push(firsts[firsts.len() - 1] + count));
        let current = Epoch { epoch: epochs.start, runs: Vec::new() };
        let fresh = vec![true; deal.mine.len()];
        let mut windows = Self { seed, k, firsts, deal, epochs: epochs.end, current, next: None, fresh };
        windows.current = windows.plan(epochs.start);
        windows
    }

    /// Goes on to an epoch.
    pub(crate) fn enter(&mut self, epoch: u32) {
        self.current = match self.next.take() {
            Some(next) if next.epoch == epoch => next,
            _ => self.plan(epoch),
        };
    }

    /// Adds `count` ids of worker `job.worker` in a step of the current epoch, and the shards to read ahead.
    pub(crate) fn fill(&mut self, step: u64, count: usize, job: &mut Job) {
        let place = job.worker - self.deal.mine.start;
        let share = worker_positions(self.deal.batch as usize, job.worker, self.deal.workers).len() as u64;
        let mut at = step * share;
        let end = at + count as u64;
        while at < end {
            let run = &self.current.runs[place];
            let pieces = run.window(at, self.k);
            let window = run.samples(&pieces);
            let domain = ((run.start + window.start) as u32).wrapping_add(1);
            let mixed = Permutation::of_domain(self.seed, self.current.epoch, domain, window.end - window.start);
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

    /// Adds the shards of the window that starts with piece `from`, or of the next epoch's first.
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
        let mut runs: Vec<Run> = self.deal.mine.clone().map(|worker| self.run(worker)).collect();
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

    /// Where a worker's run lies: its shares of all full steps, and of a short last one.
    fn run(&self, worker: usize) -> Run {
        let n = self.firsts[self.firsts.len() - 1];
        let Deal { batch, workers, .. } = self.deal;
        let (steps, rest) = (n / batch, n % batch);
        let cut = |worker: usize| {
            let of = |b: u64| (worker as u128 * u128::from(b) / workers as u128) as u64;
            steps * of(batch) + of(rest)
        };
        Run { start: cut(worker), len: cut(worker + 1) - cut(worker), pieces: Vec::new() }
    }
}

/// Consecutive samples of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub shard: usize,
    /// Id of the first sample.
    pub first: u64,
    /// Samples of the worker's run before it.
    pub before: u64,
}

/// What a worker reads in one epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    /// Where it starts among the samples of the epoch; distinguishes its windows' permutations from those of other workers.
    pub start: u64,
    pub len: u64,
    pub pieces: Vec<Piece>,
}

impl Run {
    /// The pieces of the window that holds sample `at` of the run.
    pub fn window(&self, at: u64, k: usize) -> Range<usize> {
        let piece = self.pieces.partition_point(|piece| piece.before <= at) - 1;
        let first = piece / k * k;
        first..self.pieces.len().min(first + k)
    }

    /// The samples of these pieces.
    pub fn samples(&self, pieces: &Range<usize>) -> Range<u64> {
        self.pieces[pieces.start].before..self.pieces.get(pieces.end).map_or(self.len, |piece| piece.before)
    }

    /// The id of sample `at`, which is in one of these pieces.
    pub fn id(&self, pieces: &Range<usize>, at: u64) -> u64 {
        let pieces = &self.pieces[pieces.clone()];
        let piece = pieces[pieces.partition_point(|piece| piece.before <= at) - 1];
        piece.first + at - piece.before
    }
}

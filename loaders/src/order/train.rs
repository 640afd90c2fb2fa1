//! Which samples make up which batch: one keyed permutation of the split per epoch, dealt to logical
//! workers and from them to ranks. Pure arithmetic; nothing is read here.

use std::ops::Range;

use crate::order::shuffle::Shuffle;
use crate::order::window::Windows;
use crate::random::{ORDER_OP, key, philox4x32};

const ROUNDS: u32 = 6;

/// A permutation of `0..n` in O(1) memory: a 6-round Feistel network over the least power of two
/// that holds `n`, with Philox keyed by (seed, epoch) as its round function, walked along its cycle
/// until the value falls below `n` (fewer than two turns on average).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    key: [u32; 2],
    epoch: u32,
    /// Tells apart the permutations of one epoch; 0 for that of a whole split.
    domain: u32,
    n: u64,
    /// Bits of the high and the low half; they differ by one where the sum is odd.
    high_bits: u32,
    low_bits: u32,
}

impl Permutation {
    /// The permutation of `0..n` for an epoch of the run with this seed.
    pub fn new(seed: u64, epoch: u32, n: u64) -> Self {
        Self::of_domain(seed, epoch, 0, n)
    }

    /// One of several independent permutations of an epoch.
    pub(crate) fn of_domain(seed: u64, epoch: u32, domain: u32, n: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { key: key(seed), epoch, domain, n, high_bits: bits.div_ceil(2), low_bits: bits / 2 }
    }

    /// Where position `i` goes; `i` must be below `n`.
    pub fn get(&self, i: u64) -> u64 {
        debug_assert!(i < self.n, "position {i} of a permutation of {}", self.n);
        let mut value = i;
        loop {
            value = self.encrypt(value);
            if value < self.n {
                return value;
            }
        }
    }

    /// Even rounds change the high half by the low one, odd rounds the other way: each is undone by
    /// itself, so the whole is a bijection whatever the halves' widths.
    fn encrypt(&self, value: u64) -> u64 {
        let mask = |bits: u32| (1u64 << bits) - 1;
        let mut high = value >> self.low_bits;
        let mut low = value & mask(self.low_bits);
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                high ^= self.scramble(low, round) & mask(self.high_bits);
            } else {
                low ^= self.scramble(high, round) & mask(self.low_bits);
            }
        }
        high << self.low_bits | low
    }

    fn scramble(&self, half: u64, round: u32) -> u64 {
        let op = u32::from(ORDER_OP) << 16 | round;
        // a half has at most 32 bits
        let block = philox4x32([half as u32, self.domain, self.epoch, op], self.key);
        u64::from(block[0])
    }
}

/// The positions of worker `v` of `workers` among the `b` samples of a step:
/// floor(v*b/V) .. floor((v+1)*b/V).
pub fn worker_positions(b: usize, v: usize, workers: usize) -> Range<usize> {
    share(b, v, workers)
}

/// The workers that rank `rank` of `ranks` carries: floor(r*V/N) .. floor((r+1)*V/N).
pub fn rank_workers(rank: usize, ranks: usize, workers: usize) -> Range<usize> {
    share(workers, rank, ranks)
}

fn share(total: usize, part: usize, parts: usize) -> Range<usize> {
    let cut = |part: usize| (part as u128 * total as u128 / parts as u128) as usize;
    cut(part)..cut(part + 1)
}

/// One batch to fill: the samples of one worker (or one evaluation batch).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// From 0; keys the random draws.
    pub epoch: u32,
    /// From 0 within the epoch.
    pub step: u64,
    /// The logical worker.
    pub worker: usize,
    /// The samples, in order; empty where a short last step has none for this worker.
    pub ids: Vec<u64>,
    /// Shards that soon come up for the first time, by number, so that they can be fetched ahead. Empty as a rule.
    pub ahead: Vec<usize>,
}

/// A sequence of jobs.
pub trait Order: Send {
    /// Puts the next job in place of `job`, reusing its memory; `false` when there is none left.
    fn fill(&mut self, job: &mut Job) -> bool;
}

/// The training order: every sample once per epoch, in that epoch's permutation; per step a job for
/// each of the rank's own workers, in their order. The last step of an epoch may be short.
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
}

#[derive(Debug, Clone)]
enum Mixing {
    Full(Permutation),
    Window(Windows),
}

impl TrainOrder {
    /// `n` samples in global batches of `batch`, dealt to `workers` of which `mine` are this rank's
    /// (see [`rank_workers`]); from `start` = (epoch, step within it) to the end of `epochs` epochs.
    ///
    /// # Panics
    /// If `batch` or `workers` is 0, or `mine` reaches past `workers`.
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
            mixing: Mixing::Full(Permutation::new(seed, epoch, n)),
        }
    }

    /// The same with another way of mixing; `counts` are the samples of each shard, in order, which sum to `n`.
    ///
    /// # Panics
    /// If the counts sum to something else, or for windows of no shard.
    pub fn shuffled(mut self, shuffle: Shuffle, counts: &[u64]) -> Self {
        assert_eq!(counts.iter().sum::<u64>(), self.n, "samples of all shards");
        self.mixing = match shuffle {
            Shuffle::Full => Mixing::Full(Permutation::new(self.seed, self.epoch, self.n)),
            Shuffle::Window(k) => {
                let epochs = self.epoch..self.epochs;
                Mixing::Window(Windows::new(
                    self.seed,
                    k,
                    counts,
                    (self.batch, self.workers),
                    self.mine.clone(),
                    epochs,
                ))
            }
        };
        self
    }

    /// Steps in an epoch, a short last one included.
    pub fn steps_per_epoch(&self) -> u64 {
        self.n.div_ceil(self.batch)
    }
}

impl Order for TrainOrder {
    fn fill(&mut self, job: &mut Job) -> bool {
        if self.mine.is_empty() || self.n == 0 {
            return false;
        }
        if self.worker == self.mine.end {
            self.worker = self.mine.start;
            self.step += 1;
        }
        if self.step >= self.steps_per_epoch() && self.epoch < self.epochs {
            self.step = 0;
            self.epoch += 1;
            match &mut self.mixing {
                Mixing::Full(permutation) => *permutation = Permutation::new(self.seed, self.epoch, self.n),
                Mixing::Window(windows) => windows.enter(self.epoch),
            }
        }
        if self.epoch >= self.epochs {
            return false;
        }
        let first = self.step * self.batch;
        let samples = self.batch.min(self.n - first) as usize;
        let positions = worker_positions(samples, self.worker, self.workers);
        (job.epoch, job.step, job.worker) = (self.epoch, self.step, self.worker);
        job.ids.clear();
        job.ahead.clear();
        match &mut self.mixing {
            Mixing::Full(permutation) => job.ids.extend(positions.map(|p| permutation.get(first + p as u64))),
            Mixing::Window(windows) => windows.fill(self.step, positions.len(), job),
        }
        self.worker += 1;
        true
    }
}

/// The evaluation order: logical batches in order of ids, whole ones dealt round-robin to ranks, so
/// that every rank count computes the same batches. `step` is the batch's number; epoch and worker are 0.
#[derive(Debug, Clone)]
pub struct EvalOrder {
    n: u64,
    batch: u64,
    next: u64,
    ranks: u64,
}

impl EvalOrder {
    /// `n` samples in batches of `batch`; the part of rank `rank` of `ranks`.
    ///
    /// # Panics
    /// If `batch` is 0 or `rank` is not below `ranks`.
    pub fn new(n: u64, batch: usize, rank: usize, ranks: usize) -> Self {
        assert!(batch > 0, "batch must not be 0");
        assert!(rank < ranks, "no rank {rank} of {ranks}");
        Self { n, batch: batch as u64, next: rank as u64, ranks: ranks as u64 }
    }
}

impl Order for EvalOrder {
    fn fill(&mut self, job: &mut Job) -> bool {
        let first = self.next.saturating_mul(self.batch);
        if first >= self.n {
            return false;
        }
        (job.epoch, job.step, job.worker) = (0, self.next, 0);
        job.ids.clear();
        job.ahead.clear();
        job.ids.extend(first..self.n.min(first.saturating_add(self.batch)));
        self.next += self.ranks;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(mut order: impl Order) -> Vec<Job> {
        let mut job = Job::default();
        std::iter::from_fn(|| order.fill(&mut job).then(|| job.clone())).collect()
    }

    #[test]
    fn a_permutation_is_a_bijection_for_any_n() {
        for n in (1..70).chain([127, 128, 129, 1000, 4095, 4097, 50_000]) {
            for (seed, epoch) in [(0, 0), (1, 0), (1, 1), (u64::MAX, u32::MAX)] {
                let permutation = Permutation::new(seed, epoch, n);
                let mut seen = vec![false; n as usize];
                for i in 0..n {
                    let to = permutation.get(i) as usize;
                    assert!(!std::mem::replace(&mut seen[to], true), "n {n}: {to} twice");
                }
            }
        }
    }

    #[test]
    fn huge_permutations_stay_in_range() {
        for n in [(1 << 33) + 7, u64::MAX >> 1, u64::MAX] {
            let permutation = Permutation::new(3, 4, n);
            let values: Vec<_> = (0..100).map(|i| permutation.get(i)).collect();
            assert!(values.iter().all(|&v| v < n));
            assert!(values.iter().any(|&v| v > n / 2) && values.iter().any(|&v| v < n / 2));
        }
    }

    #[test]
    fn permutations_look_random() {
        let n = 10_000u64;
        let at = |seed, epoch| {
            let permutation = Permutation::new(seed, epoch, n);
            (0..n).map(|i| permutation.get(i)).collect::<Vec<_>>()
        };
        let one = at(1, 0);
        // Two unrelated permutations agree in one place on average; so do they with the identity.
        for other in [at(1, 1), at(2, 0), (0..n).collect()] {
            let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 10, "{same} places agree");
        }
        // Mean distance of neighbours: n / 3, standard error about 0.24 % of n.
        let distance: u64 = one.windows(2).map(|w| w[0].abs_diff(w[1])).sum();
        let mean = distance as f64 / (n - 1) as f64 / n as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.015, "{mean}");
        // The first tenth holds members of each tenth: 100 +- 10 each.
        let mut tenths = [0; 10];
        for &value in &one[..1000] {
            tenths[(value / 1000) as usize] += 1;
        }
        assert!(tenths.iter().all(|c| (60..140).contains(c)), "{tenths:?}");
    }

    #[test]
    fn shares_follow_the_floor_formulas() {
        let cuts = |b, w| (0..w).map(|v| worker_positions(b, v, w)).collect::<Vec<_>>();
        assert_eq!(cuts(10, 4), [0..2, 2..5, 5..7, 7..10]);
        assert_eq!(cuts(2, 4), [0..0, 0..1, 1..1, 1..2]);
        assert_eq!(rank_workers(0, 3, 4), 0..1);
        assert_eq!(rank_workers(1, 3, 4), 1..2);
        assert_eq!(rank_workers(2, 3, 4), 2..4);
    }

    #[test]
    fn ranks_together_make_the_steps_of_one_rank() {
        let order = |mine| TrainOrder::new(9, 23, 10, 4, mine, (0, 0), 2);
        let whole = jobs(order(0..4));
        assert_eq!(whole.len(), 2 * 3 * 4);
        for ranks in 1..=4 {
            let mut parts: Vec<_> = (0..ranks).flat_map(|rank| jobs(order(rank_workers(rank, ranks, 4)))).collect();
            parts.sort_by_key(|job| (job.epoch, job.step, job.worker));
            assert_eq!(parts, whole);
        }
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
    fn a_run_continues_where_it_stopped() {
        let order = |start| TrainOrder::new(9, 23, 10, 2, 0..2, start, 3);
        let whole = jobs(order((0, 0)));
        for (skipped, start) in [(2, (0, 1)), (6, (1, 0)), (6, (0, 3)), (10, (1, 2))] {
            assert_eq!(jobs(order(start)), whole[skipped..]);
        }
        assert_eq!(jobs(order((3, 0))), []);
        assert_eq!(jobs(order((2, 3))), []);
    }

    #[test]
    fn nothing_to_do_ends_at_once() {
        assert_eq!(jobs(TrainOrder::new(1, 0, 4, 1, 0..1, (0, 0), 5)), []);
        assert_eq!(jobs(TrainOrder::new(1, 9, 4, 2, 1..1, (0, 0), 5)), []);
        assert_eq!(jobs(EvalOrder::new(0, 4, 0, 1)), []);
    }

    #[test]
    fn evaluation_batches_do_not_depend_on_ranks() {
        let whole = jobs(EvalOrder::new(25, 10, 0, 1));
        assert_eq!(
            whole.iter().map(|j| j.ids.clone()).collect::<Vec<_>>(),
            [(0..10).collect::<Vec<_>>(), (10..20).collect(), (20..25).collect()]
        );
        for ranks in 1..=5 {
            let mut parts: Vec<_> = (0..ranks).flat_map(|rank| jobs(EvalOrder::new(25, 10, rank, ranks))).collect();
            parts.sort_by_key(|job| job.step);
            assert_eq!(parts, whole);
        }
    }
}

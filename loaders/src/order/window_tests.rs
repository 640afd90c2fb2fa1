//! Window orders beside the full order: the same steps, every sample once, few shards at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Job, Order, Shuffle, TrainOrder, rank_workers};

const SEED: u64 = 11;

fn order(counts: &[u64], k: usize, batch: usize, workers: usize, mine: Range<usize>, start: (u32, u64)) -> TrainOrder {
    let n = counts.iter().sum();
    TrainOrder::new(SEED, n, batch, workers, mine, start, 3).shuffled(Shuffle::Window(k), counts)
}

fn jobs(mut order: TrainOrder) -> Vec<Job> {
    let mut job = Job::default();
    std::iter::from_fn(|| order.fill(&mut job).then(|| job.clone())).collect()
}

/// Epoch, step, worker and samples, without the shards to read ahead.
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

/// Even, uneven, empty, tiny shards; fewer shards than workers; batches that do not divide anything.
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
fn every_sample_once_an_epoch_in_the_steps_of_the_full_order() {
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
fn ranks_together_make_what_one_rank_makes() {
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
fn a_run_continues_where_it_stopped() {
    for (counts, k, batch, workers) in settings() {
        let whole = content(&jobs(order(&counts, k, batch, workers, 0..workers, (0, 0))));
        let starts: BTreeSet<_> = whole.iter().map(|job| (job.0, job.1)).collect();
        for start in starts.into_iter().step_by(7) {
            let rest: Vec<_> = whole.iter().filter(|job| (job.0, job.1) >= start).cloned().collect();
            assert_eq!(content(&jobs(order(&counts, k, batch, workers, 0..workers, start))), rest);
        }
    }
}

/// The work to continue does not depend on how far the run was: only the epoch's shards are dealt anew.
#[test]
fn a_far_position_is_reached_at_once() {
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
            let ids: Vec<u64> = got.iter().filter(|job| job.epoch == epoch).flat_map(|job| job.ids.clone()).collect();
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

/// Within a window of m = k * 100 samples the order is a full permutation: neighbours come from one shard with
/// probability 1 / k, and lie m / 3 apart. The effective window is m.
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
            // the sample's position if the window's shards are laid end to end
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
    // the shards that a worker gets differ, too
    let first = |ids: &[u64]| ids.iter().take(10).map(|&id| shard_of(&counts, id)).collect::<BTreeSet<_>>();
    assert_ne!(first(&one), first(&ids(1, 1)));
}

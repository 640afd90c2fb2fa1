//! What the ranks' loaders did in an epoch: times of the rank that waited longest, and advice.

use std::time::Duration;

use crate::error::Error;
use crate::report::Loading;
use crate::train::agree::session::Session;
use loaders::LoaderStats;
use loaders::stats::Stages;

/// Numbers of one rank that travel.
const FIELDS: usize = 8;

/// The ranks' loaders over an epoch of this length in which so many records were left out, and a line of advice for the slowest.
/// Collective.
pub fn gather(
    session: &Session,
    stats: LoaderStats,
    skipped: u64,
    time: Duration,
    threads: usize,
) -> Result<(Loading, String), Error> {
    let (rank, ranks) = (session.world.rank, session.world.size);
    let mut all = vec![0.0; FIELDS * ranks];
    all[FIELDS * rank..][..FIELDS].copy_from_slice(&numbers(&stats));
    if ranks > 1 {
        all = session.comm.run("sum of loader statistics", move |world| {
            world.sum_f64(&mut all)?;
            Ok(all)
        })?;
    }
    let all: Vec<LoaderStats> = all.chunks(FIELDS).map(stats_of).collect();
    let slowest = (0..ranks).max_by_key(|&r| (all[r].wait, std::cmp::Reverse(r))).unwrap_or(0);
    let advice = all[slowest].advice(time, threads);
    let advice = if ranks > 1 { format!("loader of rank {slowest}: {advice}") } else { format!("loader: {advice}") };
    Ok((loading(&all[slowest], skipped), advice))
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

fn numbers(stats: &LoaderStats) -> [f64; FIELDS] {
    let s = stats.stages;
    let [wait, read, decode, transform, slots] =
        [stats.wait, s.read, s.decode, s.transform, s.slots].map(|time| time.as_secs_f64());
    [wait, read, decode, transform, slots, stats.images as f64, stats.bytes as f64, stats.depth()]
}

fn stats_of(numbers: &[f64]) -> LoaderStats {
    let time = |i: usize| Duration::from_secs_f64(numbers[i].max(0.0));
    let count = |i: usize| numbers[i] as u64;
    let stages = Stages { read: time(1), decode: time(2), transform: time(3), slots: time(4) };
    // the depth travels as a mean: over a thousand batches it keeps three decimals
    let (batches, queue) = (1000, (1000.0 * numbers[7]).round() as u64);
    LoaderStats { wait: time(0), images: count(5), bytes: count(6), skipped: 0, batches, queue, stages }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_way() {
        let seconds = Duration::from_millis;
        let stages = Stages { read: seconds(10), decode: seconds(2000), transform: seconds(30), slots: seconds(4) };
        let stats = LoaderStats {
            wait: seconds(1500),
            images: 1000,
            bytes: 100_000_000,
            skipped: 3,
            batches: 2000,
            queue: 2500,
            stages,
        };
        let back = stats_of(&numbers(&stats));
        assert_eq!((back.stages, back.wait, back.images, back.depth()), (stages, stats.wait, 1000, 1.25));
        let shown = loading(&back, 7);
        assert_eq!((shown.skipped, shown.decode_us, shown.data_wait_s), (7, 2000.0, 1.5));
    }
}

//! What the ranks' loaders did in an epoch: times of the rank that waited longest, and advice.

use std::time::Duration;

use comm::{Comm, WorldInfo};
use loaders::LoaderStats;
use report::{Advice, Loading};

use crate::error::Error;

/// An epoch, as one rank's loader saw it.
#[derive(Clone, Copy, Debug)]
pub struct EpochLoading {
    /// What this rank's loader did.
    pub stats: LoaderStats,
    /// Records left out, over all ranks.
    pub skipped: u64,
    /// Length of the epoch.
    pub time: Duration,
    /// Loader threads of a rank.
    pub threads: usize,
    /// Steps of this process in the epoch.
    pub steps: u64,
    /// Whether records come from mappings of files on this machine.
    pub local: bool,
}

/// Steps below which an epoch says nothing of the next: its files are read for the first time, and caches are empty.
const LEAST_STEPS: u64 = 50;

/// Share of an epoch from which on waiting for data is worth a line.
const LARGE: f64 = 0.1;

/// The loader of the rank that waited longest for it, and a line of advice unless the epoch was too short for one. Collective.
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
    let pressing = stats.wait.as_secs_f64() >= LARGE * epoch.time.as_secs_f64();
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
    use loaders::stats::Stages;

    use super::*;

    #[test]
    fn times_are_those_of_an_image() {
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

//! What a training step takes on more ranks than there were, one a node, as a range: from ranks that leave each other alone to ranks that
//! slow each other as the measured ones did. With three counts and more, the largest is predicted from the others, to see what the range
//! is worth.

use super::scale::{Measured, Point};

/// A link between nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second, one way.
    pub rate: f64,
    /// Seconds.
    pub latency: f64,
}

/// A step in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// All of it.
    pub step_ms: f64,
    /// In the sum of gradients.
    pub comm_ms: f64,
}

/// A step on so many ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The ranks.
    pub ranks: usize,
    /// Nobody waits, the link is used in full.
    pub best: Time,
    /// Ranks slow each other as here, the link is used by half.
    pub worst: Time,
}

/// A count that was measured, as it is predicted from smaller ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldOut {
    /// Predicted from smaller counts, on the link that these had.
    pub predicted: Forecast,
    /// Milliseconds as measured.
    pub step_ms: f64,
}

/// How much of the link's rate the worst case uses.
const USED: f64 = 0.5;

/// What the two ends of the range assume.
pub const BEST: &str = "every node computes as one rank here, nobody waits for another, ring allreduce at the link's full rate after \
                        backward";
/// The other end.
pub const WORST: &str = "ranks slow each other as they did here, what they waited for each other beside the sum itself grows with log2 \
                         of their number, allreduce at half of the link's rate";

/// The range for `ranks` ranks, one a node.
pub fn forecast(measured: &Measured, ranks: usize, link: Link) -> Forecast {
    of_points(&measured.points, measured, ranks, link)
}

/// Messages that a rank sends in a step on so many ranks: by recursive halving and doubling at least, by rings at most.
pub fn messages(measured: &Measured, ranks: usize) -> [u64; 2] {
    let (sums, ranks) = (measured.buckets as u64, ranks.max(1) as u64);
    [2 * sums * u64::from(ranks.next_power_of_two().ilog2()), 2 * sums * (ranks - 1)]
}

/// The largest count, as predicted from the others; with three counts and more.
pub fn held_out(measured: &Measured) -> Option<HeldOut> {
    let [rest @ .., last] = measured.points.as_slice() else { return None };
    let known = rest.last()?;
    let fit = known.link?;
    let n = known.ranks as f64;
    // the link by which the ring of the known count takes what was measured
    let link = Link { rate: 2.0 * (n - 1.0) / n * fit.rate, latency: fit.latency / (2.0 * n.log2().ceil()) };
    Some(HeldOut { predicted: of_points(rest, measured, last.ranks, link), step_ms: last.step_ms })
}

impl HeldOut {
    /// By which part of the measured time the range misses it.
    pub fn error(&self) -> f64 {
        let Forecast { best, worst, .. } = self.predicted;
        let (low, high) = (best.step_ms.min(worst.step_ms), best.step_ms.max(worst.step_ms));
        (self.step_ms - self.step_ms.clamp(low, high)).abs() / self.step_ms
    }
}

fn of_points(points: &[Point], measured: &Measured, ranks: usize, link: Link) -> Forecast {
    let alone = points.first().map_or(0.0, |point| point.step_ms);
    let ring = ring(measured, ranks, link);
    let compute = points.iter().map(|point| point.step_ms - point.comm_ms).fold(alone, f64::max);
    let grown = |point: &Point| {
        let more = (ranks as f64).log2() / (point.ranks as f64).log2();
        waited(measured, point) * more.max(1.0)
    };
    let waits = points.iter().filter(|point| point.ranks > 1).map(grown).fold(0.0, f64::max);
    let time = |compute: f64, comm_ms: f64| Time { step_ms: compute + comm_ms, comm_ms };
    Forecast { ranks, best: time(alone, ring), worst: time(compute, ring / USED + waits) }
}

/// Milliseconds in the sum of gradients beyond what the sum itself takes: the ranks waited for each other.
fn waited(measured: &Measured, point: &Point) -> f64 {
    let Some(fit) = point.link else { return 0.0 };
    let sum = measured.buckets as f64 * fit.latency + measured.bytes as f64 / fit.rate;
    (point.comm_ms - 1e3 * sum).max(0.0)
}

/// Milliseconds that the sum of the gradients takes on `ranks` ranks, one a node: each bucket by a ring at full rate, 2 (N - 1) / N of
/// its bytes each way, and 2 log2 N latencies, the least that any algorithm needs for both halves.
fn ring(measured: &Measured, ranks: usize, link: Link) -> f64 {
    let n = ranks as f64;
    let wire = 2.0 * (n - 1.0) / n * measured.bytes as f64 / link.rate;
    1e3 * (wire + measured.buckets as f64 * 2.0 * n.log2().ceil() * link.latency)
}

#[cfg(test)]
mod tests {
    use super::super::scale::Fit;
    use super::*;

    const LINK: Link = Link { rate: 10e9, latency: 10e-6 };

    fn measured(points: &[Point]) -> Measured {
        let (bytes, buckets) = (100_000_000, 25);
        Measured { points: points.to_vec(), bytes, buckets, memory_mb: 0.0, threads: 1, library: String::new() }
    }

    fn point(ranks: usize, step_ms: f64, comm_ms: f64, link: Option<Fit>) -> Point {
        Point { ranks, step_ms, comm_ms, link }
    }

    #[test]
    fn a_ring_by_hand() {
        // 2 * 7/8 * 100 MB at 10 GB/s are 17.5 ms; 25 buckets of 6 latencies of 10 us are 1.5 ms
        assert!((ring(&measured(&[]), 8, LINK) - 19.0).abs() < 1e-9);
        assert_eq!(ring(&measured(&[]), 1, LINK), 0.0);
    }

    #[test]
    fn messages_by_hand() {
        assert_eq!(
            [1, 2, 6, 64].map(|ranks| messages(&measured(&[]), ranks)),
            [[0, 0], [50, 50], [150, 250], [300, 3150]]
        );
    }

    /// Two ranks that get in each other's way: 73 % at 2 do not become 99.9 % at 64.
    #[test]
    fn the_range_holds_what_was_measured() {
        // 100 MB at 20 GB/s and 25 latencies of 40 us: 6 ms of the 16 are the sum's own
        let fit = Fit { latency: 40e-6, rate: 20e9 };
        let two = measured(&[point(1, 100.0, 0.0, None), point(2, 137.0, 16.0, Some(fit))]);
        let Forecast { best, worst, .. } = forecast(&two, 64, LINK);
        let ring = 2.0 * 63.0 / 64.0 * 10.0 + 25.0 * 12.0 * 0.01;
        assert!((best.step_ms - (100.0 + ring)).abs() < 1e-9, "{best:?}");
        // 121 of compute, the ring twice, 10 ms of waiting six times
        assert!((worst.step_ms - (121.0 + 2.0 * ring + 60.0)).abs() < 1e-9, "{worst:?}");
        assert!(100.0 / worst.step_ms < 0.73 && worst.comm_ms < worst.step_ms);
        assert_eq!(held_out(&two), None);
    }

    /// Ranks of one machine that behave as the model says are predicted, and others are known to be off.
    #[test]
    fn the_largest_count_is_predicted_from_the_others() {
        let of = |last: f64| {
            let fit = Fit { latency: 0.0, rate: 10e9 };
            let points =
                [point(1, 100.0, 0.0, None), point(2, 110.0, 10.0, Some(fit)), point(4, last, 16.0, Some(fit))];
            held_out(&measured(&points)).unwrap()
        };
        // a ring of four takes 3/4 * 2 of 10 ms, a quarter more than that of two by half: from 115 to 130
        let good = of(120.0);
        let Forecast { ranks, best, worst } = good.predicted;
        assert!(ranks == 4 && (best.step_ms - 115.0).abs() < 1e-9 && (worst.step_ms - 130.0).abs() < 1e-9, "{good:?}");
        assert_eq!(good.error(), 0.0);
        assert!((of(260.0).error() - 0.5).abs() < 1e-9);
    }
}

//! How a training step scales, measured on 1, 2, 4 ... of the ranks that were started; [`forecast`] says what to expect of more.
//! Weak scaling: every rank has the same batch, and gradients are summed after backward.

use std::time::{Duration, Instant};

use backend::{Backend, Buffer, Precision};
use comm::{Comm, Error as CommError, World};

use super::trained::{Setting, Synthetic, Work};
use crate::device::{Device, DeviceChoice};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::agree::gpus;

/// The arguments of `trireme bench scale`.
pub struct Scale {
    /// Network.
    pub model: String,
    /// Images a step on each rank.
    pub batch: usize,
    /// What to compute on.
    pub device: DeviceChoice,
    /// Whether several ranks may compute on one GPU.
    pub share_gpu: bool,
    /// Compute threads a rank; `None` = its share of the cores.
    pub threads: Option<usize>,
    /// How long to measure on each number of ranks.
    pub seconds: f64,
}

/// A step on so many ranks.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Ranks that worked.
    pub ranks: usize,
    /// Milliseconds of the slowest rank's median step.
    pub step_ms: f64,
    /// Milliseconds of it in the sum of gradients, waiting for others included: the largest of the ranks' medians.
    pub comm_ms: f64,
    /// Latency and bandwidth of the sum, from sizes of 4 KB to 4 MB; none on one rank.
    pub link: Option<Fit>,
}

/// t = latency + bytes / rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Seconds.
    pub latency: f64,
    /// Bytes a second.
    pub rate: f64,
}

/// What was measured, on rank 0.
pub struct Measured {
    /// By number of ranks, 1 first.
    pub points: Vec<Point>,
    /// Bytes of all gradients.
    pub bytes: usize,
    /// Sums that they go in.
    pub buckets: usize,
    /// MB of the largest rank.
    pub memory_mb: f64,
    /// Compute threads of a rank.
    pub threads: usize,
    /// The MPI library.
    pub library: String,
}

const WARM_UP: usize = 3;
const FEWEST: usize = 5;
/// Elements of the sums behind [`Point::link`].
const SIZES: [usize; 5] = [1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 20];

/// Measures; collective. `None` on ranks other than 0.
pub fn run<D: Device>(device: &D, request: &Scale) -> Result<Option<Measured>, Error> {
    let mut session = Session::join(Comm::launch())?;
    let Scale { model, batch, seconds, share_gpu, device: _, threads: _ } = request;
    let options =
        format!("trireme bench scale\n{model}\n--batch {batch}\n--seconds {seconds}\n--share-gpu {share_gpu}");
    session.same_start(D::NAME, &options)?;
    let cores = session.cores()?;
    let threads = request.threads.unwrap_or(device.threads(cores.own));
    let node_rank = session.world.node_rank;
    let (model, batch) = (request.model.as_str(), request.batch);
    let (threads, precision) = (Some(threads), Precision::F32);
    let setting = Setting { batch, threads, precision, tf32: false, node_rank, exchanged: true };
    let work = Work { model, size: None, setting };
    let mut work = session.agree(Synthetic::new(device, &work))?;
    let checked = gpus::check(&session, device.gpu(work.trained.graph.backend()).as_ref(), request.share_gpu)?;
    session.notes.extend(checked.notes);
    let mut points: Vec<Point> = Vec::new();
    let mut steps = FEWEST;
    for ranks in counts(session.world.size) {
        let part = session.comm.run("choice of ranks", |world| world.split(ranks))?;
        let mut numbers = [0.0; 4];
        if session.world.rank < ranks {
            let (step, comm) =
                time_steps(&session.comm, &part, &mut work, steps, (ranks == 1).then_some(request.seconds))?;
            numbers = [step, comm, 0.0, 0.0];
            if let Some(fit) = (ranks > 1).then(|| measure_link(&session.comm, &part)).transpose()? {
                numbers = [step, comm, fit.latency, fit.rate];
            }
        } else {
            // a wait in MPI would take a core from those that work
            std::thread::sleep(Duration::from_secs_f64(request.seconds));
        }
        session.comm.run("longest of the bench", |world| world.max_f64(&mut numbers))?;
        session.comm.run("end of the choice", |_| part.free())?;
        let [step_ms, comm_ms, latency, rate] = numbers;
        steps = ((request.seconds * 1e3 / step_ms) as usize).max(FEWEST);
        points.push(Point { ranks, step_ms, comm_ms, link: (ranks > 1).then_some(Fit { latency, rate }) });
    }
    let mut memory = [super::memory_mb()];
    session.comm.run("largest memory", |world| world.max_f64(&mut memory))?;
    session.comm.finish()?;
    let chunks = &work.trained.graph.layout().chunks;
    let (bytes, buckets) = (4 * chunks.iter().sum::<usize>(), chunks.len());
    let library = session.world.library.clone();
    let [memory_mb] = memory;
    let measured = Measured { points, bytes, buckets, memory_mb, threads: work.trained.threads, library };
    Ok(session.is_root().then_some(measured))
}

/// 1, 2, 4 ... and all.
fn counts(ranks: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < ranks).collect();
    counts.push(ranks);
    counts
}

/// Medians in milliseconds of the step and of its sum; for `seconds`, where given, else so many steps, alike on all ranks.
fn time_steps<B: Backend>(
    comm: &Comm,
    part: &World,
    work: &mut Synthetic<B>,
    steps: usize,
    seconds: Option<f64>,
) -> Result<(f64, f64), Error> {
    let (mut all, mut sums) = (Vec::new(), Vec::new());
    let mut begin = Instant::now();
    let more = |done: usize, begin: Instant| match seconds {
        Some(seconds) => done < WARM_UP + FEWEST || begin.elapsed().as_secs_f64() < seconds,
        None => done < WARM_UP + steps,
    };
    while more(all.len(), begin) {
        if all.len() == WARM_UP {
            begin = Instant::now();
        }
        let start = Instant::now();
        let mut waited = Duration::ZERO;
        work.step(|graph| {
            let start = Instant::now();
            for chunk in (0..graph.layout().chunks.len()).filter(|_| part.size() > 1) {
                let mut gradients = graph.take(chunk);
                gradients.fetch()?;
                let values = gradients.staged()?;
                comm.run("sum of gradients", |_| part.sum_f32(values))?;
                gradients.unstage()?;
                graph.put(chunk, vec![gradients]);
            }
            waited = start.elapsed();
            Ok(())
        })?;
        all.push(start.elapsed());
        sums.push(waited);
    }
    let median = |mut times: Vec<Duration>| {
        times.drain(..WARM_UP);
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    Ok((median(all), median(sums)))
}

/// Latency and rate of the sum over the ranks of `part`.
fn measure_link(comm: &Comm, part: &World) -> Result<Fit, CommError> {
    comm.run("link of the bench", |_| {
        let mut points = Vec::new();
        for elems in SIZES {
            let mut values = vec![0f32; elems];
            let mut times = Vec::new();
            for _ in 0..21 {
                part.barrier()?;
                let start = Instant::now();
                part.sum_f32(&mut values)?;
                times.push(start.elapsed().as_secs_f64());
            }
            // the fastest: what disturbs a sum is no part of the link
            points.push((4.0 * elems as f64, times.into_iter().fold(f64::INFINITY, f64::min)));
        }
        Ok(fit(&points))
    })
}

/// Line through (bytes, seconds) with the least sum of squared relative errors, so that small sizes count as much as large ones.
fn fit(points: &[(f64, f64)]) -> Fit {
    let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, t)| f(x, t) / (t * t)).sum::<f64>();
    let (w, wx, wxx) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|x, _| x * x));
    let (wt, wxt) = (sum(&|_, t| t), sum(&|x, t| x * t));
    let slope = (w * wxt - wx * wt) / (w * wxx - wx * wx);
    if slope.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
        // times that fall with the size are noise: the largest says least wrong
        let (bytes, seconds) = points.last().copied().unwrap_or((1.0, f64::INFINITY));
        return Fit { latency: 0.0, rate: bytes / seconds };
    }
    Fit { latency: ((wt - slope * wx) / w).max(0.0), rate: 1.0 / slope }
}

// Forecasts the time of a training step on more ranks than were measured, with one rank per node. The forecast is a range: at best the
// ranks do not disturb each other, at worst they slow each other down as the measured ranks did. With three or more counts, the largest is
// predicted from the others to test the forecast.

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
    use super::*;

    #[test]
    fn ranks_double_up_to_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(4), [1, 2, 4]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
    }

    #[test]
    fn a_line_is_found_again() {
        let (latency, rate) = (5e-6, 2e9);
        let points: Vec<(f64, f64)> = [4e3, 1e5, 1e6, 4e6].map(|x| (x, latency + x / rate)).to_vec();
        let found = fit(&points);
        assert!((found.latency / latency - 1.0).abs() < 1e-6 && (found.rate / rate - 1.0).abs() < 1e-6, "{found:?}");
    }
}

#[cfg(test)]
mod forecast_tests {
    use super::{Fit, *};

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

//! Measures how the time per training step scales with 1, 2, 4 ... ranks. [`forecast`] predicts it for larger numbers
//! of ranks. This is weak scaling: every rank has the same batch size. Gradients are summed as in training.

use std::time::{Duration, Instant};

use backend::{Backend, Precision};
use comm::codec::FLOAT;
use recipe::{Overlap, TransportSetting};

use super::exchange::Exchange;
pub use super::exchange::LinearFit;
use super::trainer::{Setting, Synthetic, Workload};
use crate::device::{Device, DeviceChoice, DeviceSettings, OVERLAP, RequestedThreads, Resources};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::agree::gpus;
use crate::train::reduce::transport::{self, Choice, Transport, TransportPlan, TransportRequest};

pub struct ScaleRequest {
    pub model: String,
    /// Images per step on each rank.
    pub batch: usize,
    pub device: DeviceChoice,
    pub precision: Precision,
    /// Transport for gradients, with the same values as `reduce.path` in a recipe.
    pub path: TransportSetting,
    pub share_gpu: bool,
    /// Compute threads per rank. `None` uses the rank's share of the cores.
    pub threads: Option<usize>,
    /// How long to measure each number of ranks. At least a few steps are measured.
    pub seconds: f64,
}

/// A step measured on a given number of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub ranks: usize,
    /// Median step time of the slowest rank, in milliseconds.
    pub step_ms: f64,
    /// Milliseconds that the gradient sum adds to a step, including the wait for other ranks: the difference to steps
    /// without sums on the same ranks. The maximum over the ranks' medians.
    pub comm_ms: f64,
    /// Latency and bandwidth of a sum over these ranks, fitted to sizes from 4 KB to 4 MB. `None` for a single rank.
    pub link: Option<LinearFit>,
}

/// The result of `trireme bench scale` on rank 0.
pub struct ScaleResult {
    /// Sorted by number of ranks, starting with 1.
    pub points: Vec<Point>,
    /// Bytes of all gradients as f32.
    pub bytes: usize,
    /// Number of gradient buckets. Each bucket is summed separately.
    pub buckets: usize,
    /// Transport for the gradients: `host` between CPUs, otherwise a value of `reduce.path`.
    pub path: &'static str,
    /// Reasons for the choice of transport on GPUs. Empty if there is no choice.
    pub why: String,
    /// True if buckets are summed during backward.
    pub overlap: bool,
    /// Memory in MB of the rank that uses most.
    pub memory_mb: f64,
    pub threads: usize,
    /// Name and version of the MPI library.
    pub library: String,
}

const WARM_UP: usize = 3;
const MIN_STEPS: usize = 5;

/// Measures steps on each number of ranks. Collective. Returns `None` on all ranks except 0.
pub fn run<D: Device>(device: &D, request: &ScaleRequest) -> Result<Option<ScaleResult>, Error> {
    Session::run(|session| measure(device, session, request))
}

fn measure<D: Device>(device: &D, session: &mut Session, request: &ScaleRequest) -> Result<Option<ScaleResult>, Error> {
    let ScaleRequest { model, batch, seconds, precision, path, share_gpu, device: _, threads: _ } = request;
    let options = format!(
        "trireme bench scale\n{model}\n--batch {batch}\n--seconds {seconds}\n--precision {precision}\n--path {path}\n\
         --share-gpu {share_gpu}"
    );
    session.same_start((D::NAME, device.why_chosen()), &options)?;
    let cores = session.cores()?;
    let requested = RequestedThreads { compute: request.threads, loader: None };
    let resources = Resources::new::<D>(cores, requested, false);
    let threads = resources.compute;
    let (node_rank, node_ranks) = (session.world.node_rank, session.world.node_size);
    let (model, batch) = (request.model.as_str(), request.batch);
    let device_settings =
        DeviceSettings { threads, node_rank, node_ranks, precision: *precision, tf32: false, deterministic: false };
    let setting = Setting { batch, device: device_settings, exchanged: true };
    let work = Workload { model, size: None, setting };
    let backend = session.agree(device.open(&device_settings).map_err(Error::from))?;
    // before memory is allocated, which fails if ranks share a GPU by mistake
    let checked = gpus::check(session, device.gpu(&backend).as_ref(), request.share_gpu)?;
    session.notes.extend(checked.notes);
    session.notes.extend(device.why_chosen().map(String::from));
    session.print_notes();
    let mut work = session.agree(Synthetic::new(backend, &work))?;
    let buckets = work.trainer.graph.layout().buckets.clone();
    let queues = work.trainer.graph.backend().queue().is_some();
    session.agree(transport::check(*path, FLOAT.name, queues))?;
    let wanted = TransportRequest {
        path: *path,
        codec: &FLOAT,
        allreduce: true,
        no_nccl: checked.no_nccl.as_deref(),
        out: None,
        buckets: &buckets,
        coded: false,
        even: true,
    };
    let Choice { transport: chosen, why } = transport::choose(session, work.trainer.graph.backend(), &wanted)?;
    let overlap = session.comm.all(OVERLAP, resources.overlap(Overlap::Auto, queues))?;
    let mut points: Vec<Point> = Vec::new();
    let mut steps = MIN_STEPS;
    for ranks in counts(session.world.size) {
        let part = session.comm.run("choice of the ranks that work", |world| world.split(ranks))?;
        let mut numbers = [0.0; 4];
        let backend = work.trainer.graph.backend();
        let transport = if ranks > 1 { chosen.over_first(session, backend, ranks)? } else { Transport::Host };
        let group = transport.group();
        let mut exchange = Exchange::new(&session.comm, part, TransportPlan { overlap, transport }, &buckets);
        if session.world.rank >= ranks {
            // sleep instead of waiting in MPI, which would use a core that the measured ranks need. Several ranks measure
            // their steps twice.
            let times = if ranks > 1 { 2.0 } else { 1.0 };
            std::thread::sleep(Duration::from_secs_f64(times * request.seconds));
        } else if ranks == 1 {
            numbers[0] = time_steps(&mut work, None, steps, Some(request.seconds))?;
        } else {
            let fit = exchange.measure_link(work.trainer.graph.backend())?;
            let alone = time_steps(&mut work, None, steps, None)?;
            let step = time_steps(&mut work, Some(&mut exchange), steps, None)?;
            numbers = [step, (step - alone).max(0.0), fit.latency, fit.rate];
        }
        group.iter().for_each(|group| group.end_watch());
        session.comm.run("maximum of the measured times", |world| world.max_f64(&mut numbers))?;
        exchange.free()?;
        let [step_ms, comm_ms, latency, rate] = numbers;
        steps = ((request.seconds * 1e3 / step_ms) as usize).max(MIN_STEPS);
        points.push(Point { ranks, step_ms, comm_ms, link: (ranks > 1).then_some(LinearFit { latency, rate }) });
    }
    let mut memory = [super::memory_mb()];
    session.comm.run("largest memory", |world| world.max_f64(&mut memory))?;
    let (bytes, buckets) = (4 * buckets.iter().sum::<usize>(), buckets.len());
    let library = session.world.library.clone();
    let [memory_mb] = memory;
    let path = if queues { chosen.name() } else { "host" };
    let threads = work.trainer.threads;
    let measured = ScaleResult { points, bytes, buckets, path, why, overlap, memory_mb, threads, library };
    Ok(session.is_root().then_some(measured))
}

/// Returns the numbers of ranks to measure: the powers of two below `ranks`, and `ranks`.
fn counts(ranks: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < ranks).collect();
    counts.push(ranks);
    counts
}

/// Returns the median time per step in milliseconds, with the sums in `exchange` if given. Measures for `seconds`
/// seconds and at least [`MIN_STEPS`] steps if `seconds` is given, otherwise for `steps` steps. With sums, the number
/// of steps must be equal on all ranks.
fn time_steps<B: Backend>(
    work: &mut Synthetic<B>,
    mut exchange: Option<&mut Exchange<B>>,
    steps: usize,
    seconds: Option<f64>,
) -> Result<f64, Error> {
    let mut all = Vec::new();
    let mut begin = Instant::now();
    let more = |done: usize, begin: Instant| match seconds {
        Some(seconds) => done < WARM_UP + MIN_STEPS || begin.elapsed().as_secs_f64() < seconds,
        None => done < WARM_UP + steps,
    };
    while more(all.len(), begin) {
        if all.len() == WARM_UP {
            begin = Instant::now();
        }
        let start = Instant::now();
        match &mut exchange {
            Some(exchange) => work.step_summed(exchange)?,
            None => work.step_alone()?,
        }
        all.push(start.elapsed());
    }
    work.trainer.finish()?;
    all.drain(..WARM_UP);
    all.sort_unstable();
    Ok(all[all.len() / 2].as_secs_f64() * 1e3)
}

// A forecast of the time of a training step on more ranks than were measured, with one rank per node. It is a range. In
// the best case the ranks do not disturb each other. In the worst case they slow each other down as the measured ranks
// did. If at least three numbers of ranks were measured, the largest is also predicted from the others to test the
// forecast.

/// The network between two nodes, as the user describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second in one direction.
    pub rate: f64,
    /// Time of a message without content, in seconds.
    pub latency: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    pub step_ms: f64,
    /// The part of `step_ms` for the gradient sum.
    pub comm_ms: f64,
}

/// Predicted times of a step on `ranks` ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    pub ranks: usize,
    /// No rank waits, and the link runs at full rate.
    pub best: StepTime,
    /// Ranks slow each other down as measured, and the link runs at half its rate.
    pub worst: StepTime,
}

/// The largest measured number of ranks, predicted from the smaller ones to check the forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastCheck {
    /// Prediction from the smaller numbers of ranks, with the link speed measured on them.
    pub predicted: Forecast,
    pub step_ms: f64,
}

/// Fraction of the link's rate that the worst case assumes.
const WORST_RATE: f64 = 0.5;

/// The best case sums buckets during backward, which is assumed to last this fraction of a step.
const BACKWARD: f64 = 2.0 / 3.0;

/// Returns a text with the best case's assumptions.
pub fn best_case(measured: &ScaleResult) -> &'static str {
    match measured.overlap {
        true => {
            "every node computes as fast as one rank alone, no rank waits for another, ring allreduce at the link's full rate, all \
             buckets but the last during backward (two thirds of a step)"
        }
        false => {
            "every node computes as fast as one rank alone, no rank waits for another, ring allreduce after backward at the link's \
             full rate"
        }
    }
}

/// Assumptions of the worst case.
pub const WORST: &str = "ranks slow each other down as measured, their waits for each other grow with log2 of the number of ranks, \
                         allreduce at half of the link's rate";

/// Forecasts a step on `ranks` ranks with a rank per node.
pub fn forecast(measured: &ScaleResult, ranks: usize, link: Link) -> Forecast {
    forecast_from(&measured.points, measured, ranks, link)
}

/// Returns the minimum and the maximum number of messages that a rank sends per step. The minimum is for recursive
/// halving and doubling, the maximum for rings.
pub fn messages(measured: &ScaleResult, ranks: usize) -> [u64; 2] {
    let (sums, ranks) = (measured.buckets as u64, ranks.max(1) as u64);
    [2 * sums * u64::from(ranks.next_power_of_two().ilog2()), 2 * sums * (ranks - 1)]
}

/// Predicts the largest measured number of ranks from the others. Returns `None` if fewer than three were measured.
pub fn predict_largest(measured: &ScaleResult) -> Option<ForecastCheck> {
    let [rest @ .., last] = measured.points.as_slice() else { return None };
    let known = rest.last()?;
    let fit = known.link?;
    let n = known.ranks as f64;
    // convert the fit for a whole sum to a link on which a ring over the same ranks takes this time
    let link = Link { rate: 2.0 * (n - 1.0) / n * fit.rate, latency: fit.latency / (2.0 * n.log2().ceil()) };
    Some(ForecastCheck { predicted: forecast_from(rest, measured, last.ranks, link), step_ms: last.step_ms })
}

impl ForecastCheck {
    /// Returns the distance from the measured time to the predicted range, as a fraction of the measured time.
    pub fn error(&self) -> f64 {
        let Forecast { best, worst, .. } = self.predicted;
        let (low, high) = (best.step_ms.min(worst.step_ms), best.step_ms.max(worst.step_ms));
        (self.step_ms - self.step_ms.clamp(low, high)).abs() / self.step_ms
    }
}

fn forecast_from(points: &[Point], measured: &ScaleResult, ranks: usize, link: Link) -> Forecast {
    let alone = points.first().map_or(0.0, |point| point.step_ms);
    let ring = ring(measured, ranks, link);
    let compute = points.iter().map(|point| point.step_ms - point.comm_ms).fold(alone, f64::max);
    let grown = |point: &Point| {
        let more = (ranks as f64).log2() / (point.ranks as f64).log2();
        waited(measured, point) * more.max(1.0)
    };
    let waits = points.iter().filter(|point| point.ranks > 1).map(grown).fold(0.0, f64::max);
    let time = |compute: f64, comm_ms: f64| StepTime { step_ms: compute + comm_ms, comm_ms };
    let hidden = if measured.overlap { BACKWARD * alone } else { 0.0 };
    let shown = (ring - hidden).max(ring / measured.buckets.max(1) as f64);
    Forecast { ranks, best: time(alone, shown), worst: time(compute, ring / WORST_RATE + waits) }
}

/// Returns how many milliseconds of `comm_ms` are waits for other ranks instead of the gradient sum itself.
fn waited(measured: &ScaleResult, point: &Point) -> f64 {
    let Some(fit) = point.link else { return 0.0 };
    let sum = measured.buckets as f64 * fit.latency + measured.bytes as f64 / fit.rate;
    (point.comm_ms - 1e3 * sum).max(0.0)
}

/// Returns the milliseconds of a gradient sum on N = `ranks` ranks with a rank per node. Each bucket is summed by a
/// ring allreduce at full rate, which sends 2 (N - 1) / N of the bucket's bytes in each direction. In addition, each
/// bucket costs 2 log2(N) latencies, rounded up. This is the minimum for any reduce-scatter followed by an allgather.
fn ring(measured: &ScaleResult, ranks: usize, link: Link) -> f64 {
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
        let found = LinearFit::new(&points);
        assert!((found.latency / latency - 1.0).abs() < 1e-6 && (found.rate / rate - 1.0).abs() < 1e-6, "{found:?}");
    }

    const LINK: Link = Link { rate: 10e9, latency: 10e-6 };

    fn measured(points: &[Point]) -> ScaleResult {
        let (bytes, buckets) = (100_000_000, 25);
        let (points, library, why) = (points.to_vec(), String::new(), String::new());
        ScaleResult { points, bytes, buckets, path: "host", why, overlap: false, memory_mb: 0.0, threads: 1, library }
    }

    fn point(ranks: usize, step_ms: f64, comm_ms: f64, link: Option<LinearFit>) -> Point {
        Point { ranks, step_ms, comm_ms, link }
    }

    #[test]
    fn a_ring_by_hand() {
        // 2 * 7/8 * 100 MB at 10 GB/s take 17.5 ms, and 25 buckets with 6 latencies of 10 us take 1.5 ms
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

    /// The two measured ranks disturb each other, so their efficiency is 73 %. The forecast for 64 ranks must not be
    /// 99.9 %.
    #[test]
    fn the_range_holds_what_was_measured() {
        // 100 MB at 20 GB/s and 25 latencies of 40 us: the sum itself takes 6 of the 16 ms
        let fit = LinearFit { latency: 40e-6, rate: 20e9 };
        let two = measured(&[point(1, 100.0, 0.0, None), point(2, 137.0, 16.0, Some(fit))]);
        let Forecast { best, worst, .. } = forecast(&two, 64, LINK);
        let ring = 2.0 * 63.0 / 64.0 * 10.0 + 25.0 * 12.0 * 0.01;
        assert!((best.step_ms - (100.0 + ring)).abs() < 1e-9, "{best:?}");
        // 121 ms of compute, twice the ring, and 10 ms of waiting times six
        assert!((worst.step_ms - (121.0 + 2.0 * ring + 60.0)).abs() < 1e-9, "{worst:?}");
        assert!(100.0 / worst.step_ms < 0.73 && worst.comm_ms < worst.step_ms);
        assert_eq!(predict_largest(&two), None);
    }

    #[test]
    fn overlap_hides_sums_up_to_the_last_bucket() {
        let of = |step_ms: f64| {
            let overlapped = ScaleResult { overlap: true, ..measured(&[point(1, step_ms, 0.0, None)]) };
            forecast(&overlapped, 8, LINK).best.comm_ms
        };
        // a ring allreduce of all 25 buckets takes 19 ms. Overlap hides up to two thirds of a step of this time, but
        // never the last bucket
        assert!((of(15.0) - 9.0).abs() < 1e-9 && (of(100.0) - 19.0 / 25.0).abs() < 1e-9, "{} {}", of(15.0), of(100.0));
    }

    /// The forecast is right for ranks that behave like the model, and otherwise reports its error.
    #[test]
    fn the_largest_count_is_predicted_from_the_others() {
        let of = |last: f64| {
            let fit = LinearFit { latency: 0.0, rate: 10e9 };
            let points =
                [point(1, 100.0, 0.0, None), point(2, 110.0, 10.0, Some(fit)), point(4, last, 16.0, Some(fit))];
            predict_largest(&measured(&points)).unwrap()
        };
        // a ring of four sends 3/4 * 2 of the bytes and takes 15 ms; the range is from 100 + 15 to 100 + 2 * 15
        let good = of(120.0);
        let Forecast { ranks, best, worst } = good.predicted;
        assert!(ranks == 4 && (best.step_ms - 115.0).abs() < 1e-9 && (worst.step_ms - 130.0).abs() < 1e-9, "{good:?}");
        assert_eq!(good.error(), 0.0);
        assert!((of(260.0).error() - 0.5).abs() < 1e-9);
    }
}

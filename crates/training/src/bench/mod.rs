//! Measurements: the training step on data in memory; below, the step on images that a loader reads, the sum over ranks and how steps
//! scale.

pub mod allreduce;
pub mod cases;
pub mod forecast;
pub mod loader_step;
mod operation;
pub mod ops;
pub mod roofline;
pub mod scale;
mod synthetic;
mod trained;

use std::fmt::Write;
use std::time::{Duration, Instant};

use backend::{Backend, Precision, Regions};
use base::cores;
use base::screen;
use engine::{Graph, NodeCost, NodeTime};
use roofline::{Machine, Roofline};
use synthetic::Synthetic;
use trained::Setting;

use crate::device::{Device, DeviceChoice};
use crate::error::Error;

/// What `trireme bench step` measures.
pub struct StepRequest {
    /// Network.
    pub model: String,
    /// Height and width of the images; `None` = what the network is meant for.
    pub size: Option<usize>,
    /// Images a step.
    pub batch: usize,
    /// What to compute on.
    pub device: DeviceChoice,
    /// Number format of the arithmetic.
    pub precision: Precision,
    /// Whether products of f32 may be rounded to tf32.
    pub tf32: bool,
    /// Compute threads; `None` = all cores.
    pub threads: Option<usize>,
    /// Time every layer.
    pub profile: bool,
    /// Compare every layer with what the cores and their memory can do.
    pub roofline: bool,
    /// How long, after the warm-up.
    pub seconds: f64,
}

impl StepRequest {
    fn work(&self) -> synthetic::Work<'_> {
        let StepRequest { model, size, batch, threads, precision, tf32, .. } = self;
        let (batch, threads, precision, tf32) = (*batch, *threads, *precision, *tf32);
        let setting = Setting { batch, threads, precision, tf32, node_rank: 0, exchanged: false };
        synthetic::Work { model, size: *size, setting }
    }
}

/// What came out.
pub struct StepResult {
    /// Height and width of the images.
    pub size: usize,
    /// Compute threads.
    pub threads: usize,
    /// By the median step.
    pub img_per_s: f64,
    /// By the fastest step.
    pub img_per_s_best: f64,
    /// Median.
    pub step_ms: f64,
    /// Steps measured.
    pub steps: usize,
    /// From the start of the process to the end of the first step.
    pub first_step_s: f64,
    /// Anonymous and shared memory.
    pub memory_mb: f64,
    /// Kind of device.
    pub device: &'static str,
    /// Device and library.
    pub backend: String,
    /// Kernels, copies and fills of the last step; none on a device without a queue.
    pub launches: Option<u64>,
    /// Parallel regions of the last step, on a device with threads of this process.
    pub regions: Option<Regions>,
    /// Microseconds of a region with nothing in it, where there are several threads.
    pub barrier_us: Option<f64>,
    /// Milliseconds per layer, if requested.
    pub profile: Option<String>,
    /// The layers beside the machine, if requested.
    pub roofline: Option<Roofline>,
}

const WARM_UP: usize = 3;

/// What single steps counted and took.
#[derive(Default)]
struct Taken {
    times: Vec<Duration>,
    first_step_s: f64,
    /// Of the last step.
    launches: Option<u64>,
    regions: Option<Regions>,
}

/// Forward, backward and update on one synthetic batch, again and again.
pub fn step<D: Device>(device: &D, request: &StepRequest, started: Instant) -> Result<StepResult, Error> {
    let mut work = Synthetic::new(device, &request.work())?;
    if request.roofline && work.trained.graph.backend().cores().is_none() {
        let why = format!("--roofline measures the cores of this process, not {}; add --device cpu", D::NAME);
        return Err(Error::Usage(why));
    }
    let taken = take_steps(&mut work, request, started)?;
    let costs = work.trained.graph.profile(false);
    work.trained.graph.take_notes().iter().for_each(|note| screen::say(note));
    let graph = &work.trained.graph;
    let Taken { mut times, first_step_s, launches, regions } = taken;
    let steps = times.len();
    times.sort_unstable();
    let (rate, median) = (|t: Duration| request.batch as f64 / t.as_secs_f64(), times[steps / 2]);
    let cores = graph.backend().cores();
    let machine = cores.filter(|_| request.roofline).map(Machine::measure).transpose()?;
    let on = |machine| {
        let layers = roofline::layers(graph, &costs, request.batch, steps);
        Roofline::new(machine, layers, median.as_secs_f64(), regions.unwrap_or_default())
    };
    Ok(StepResult {
        size: graph.net().input.h,
        threads: work.trained.threads,
        img_per_s: rate(median),
        img_per_s_best: rate(times[0]),
        step_ms: median.as_secs_f64() * 1e3,
        steps,
        first_step_s,
        memory_mb: memory_mb(),
        device: D::NAME,
        backend: graph.backend().describe(),
        launches,
        regions,
        barrier_us: cores.filter(|cores| cores.threads() > 1).map(|cores| 1e6 * cores.barrier()),
        profile: request.profile.then(|| profile_table(graph, &costs, steps)),
        roofline: machine.map(on),
    })
}

/// Warms up, then takes steps for as long as is requested; the warm-up's times are left out.
fn take_steps<B: Backend>(work: &mut Synthetic<B>, request: &StepRequest, started: Instant) -> Result<Taken, Error> {
    let (mut taken, mut begin) = (Taken::default(), Instant::now());
    while taken.times.len() < WARM_UP + 3 || begin.elapsed().as_secs_f64() < request.seconds {
        let (start, launches, regions) = (Instant::now(), work.trained.launches(), work.trained.regions());
        work.step_alone()?;
        if taken.times.is_empty() {
            work.trained.finish()?;
        }
        taken.times.push(start.elapsed());
        taken.launches = work.trained.launches().zip(launches).map(|(now, before)| now - before);
        taken.regions = work.trained.regions().zip(regions).map(|(now, before)| now - before);
        if taken.times.len() == 1 {
            taken.first_step_s = started.elapsed().as_secs_f64();
        }
        if taken.times.len() == WARM_UP {
            work.trained.graph.profile(request.profile || request.roofline);
            begin = Instant::now();
        }
    }
    work.trained.finish()?;
    taken.times.drain(..WARM_UP);
    Ok(taken)
}

fn profile_table<B: Backend>(graph: &Graph<B>, costs: &[NodeCost], steps: usize) -> String {
    let head = ("layer", "MMAC", "forward ms", "backward ms", "regions");
    let mut text = format!("{:<20} {:>9} {:>11} {:>11} {:>8}  by\n", head.0, head.1, head.2, head.3, head.4);
    let ms = |d: Duration| d.as_secs_f64() * 1e3 / steps as f64;
    let (net, shapes) = (graph.net(), graph.shapes());
    let mut row = |name: &str, macs: &str, [forward, backward]: NodeTime, regions: u64, by: &str| {
        let (forward, backward, regions) = (ms(forward), ms(backward), regions as f64 / steps as f64);
        let _ = writeln!(text, "{name:<20} {macs:>9} {forward:>11.3} {backward:>11.3} {regions:>8.1}  {by}");
    };
    for (i, (cost, node)) in costs.iter().zip(&net.nodes).enumerate() {
        let macs = format!("{:.3}", node.op.macs(shapes[node.inputs[0].0]) as f64 / 1e6);
        row(&node.name, &macs, cost.time, cost.regions.all(), &graph.implementation(i));
    }
    let sum = |way: usize| -> Duration { costs.iter().map(|cost| cost.time[way]).sum() };
    row("all layers", "", [sum(0), sum(1)], costs.iter().map(|cost| cost.regions.all()).sum(), "");
    text
}

/// Anonymous and shared memory of this process now, in MB (10^6 bytes); mapped files do not count.
pub fn memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb = |key: &str| -> f64 {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
    };
    (kb("RssAnon:") + kb("RssShmem:")) * 1024.0 / 1e6
}

/// Model and number of the processors, as the kernel names them.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ").map(|(_, m)| m.to_string()));
    let model = model.unwrap_or_else(|| "unknown".into());
    format!("{model}, {} core(s) for this process", cores::affinity().len())
}

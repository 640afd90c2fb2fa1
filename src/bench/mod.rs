//! Measurements: the training step on data in memory; below, the step on images that a loader reads, the sum over ranks and how steps
//! scale.

pub mod allreduce;
pub mod forecast;
pub mod loader_step;
pub mod scale;
mod synthetic;
mod trained;

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::backend::{Backend, Precision};
use crate::cores;
use crate::device::{Device, DeviceChoice};
use crate::error::Error;
use crate::nn::Graph;
use synthetic::Synthetic;
use trained::Setting;

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
    /// Milliseconds per layer, if requested.
    pub profile: Option<String>,
}

const WARM_UP: usize = 3;

/// Forward, backward and update on one synthetic batch, again and again.
pub fn step<D: Device>(device: &D, request: &StepRequest, started: Instant) -> Result<StepResult, Error> {
    let mut work = Synthetic::new(device, &request.work())?;
    let mut times = Vec::new();
    let (mut first_step_s, mut begin, mut launches) = (0.0, Instant::now(), None);
    while times.len() < WARM_UP + 3 || begin.elapsed().as_secs_f64() < request.seconds {
        let (start, before) = (Instant::now(), work.trained.launches());
        work.step_alone()?;
        if times.is_empty() {
            work.trained.finish()?;
        }
        times.push(start.elapsed());
        launches = work.trained.launches().zip(before).map(|(now, before)| now - before);
        if times.len() == 1 {
            first_step_s = started.elapsed().as_secs_f64();
        }
        if times.len() == WARM_UP {
            work.trained.graph.profile(request.profile);
            begin = Instant::now();
        }
    }
    work.trained.finish()?;
    work.trained.graph.take_notes().iter().for_each(|note| eprintln!("{note}"));
    let steps = times.len() - WARM_UP;
    let profile = request.profile.then(|| profile_table(&mut work.trained.graph, steps));
    let mut times = times.split_off(WARM_UP);
    times.sort_unstable();
    let rate = |t: Duration| request.batch as f64 / t.as_secs_f64();
    let median = times[steps / 2];
    Ok(StepResult {
        size: work.trained.graph.net().input.h,
        threads: work.trained.threads,
        img_per_s: rate(median),
        img_per_s_best: rate(times[0]),
        step_ms: median.as_secs_f64() * 1e3,
        steps,
        first_step_s,
        memory_mb: memory_mb(),
        device: D::NAME,
        backend: work.trained.graph.backend().describe(),
        launches,
        profile,
    })
}

fn profile_table<B: Backend>(graph: &mut Graph<B>, steps: usize) -> String {
    let times = graph.profile(false);
    let mut text = format!("{:<20} {:>9} {:>11} {:>11}  {}\n", "layer", "MMAC", "forward ms", "backward ms", "by");
    let ms = |d: Duration| d.as_secs_f64() * 1e3 / steps as f64;
    let (net, shapes) = (graph.net(), graph.shapes());
    for (i, ([forward, backward], node)) in times.iter().zip(&net.nodes).enumerate() {
        let macs = node.op.macs(shapes[node.inputs[0].0]) as f64 / 1e6;
        let by = graph.implementation(i);
        let _ = writeln!(text, "{:<20} {macs:>9.3} {:>11.3} {:>11.3}  {by}", node.name, ms(*forward), ms(*backward));
    }
    let sum = |way: usize| ms(times.iter().map(|t| t[way]).sum());
    let _ = writeln!(text, "{:<20} {:>9} {:>11.3} {:>11.3}", "all layers", "", sum(0), sum(1));
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

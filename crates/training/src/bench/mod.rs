//! Benchmarks. This file measures a training step, either on data in memory or on images from a loader.

pub mod allreduce;
mod exchange;
pub mod operation;
pub mod ops;
pub mod roofline;
pub mod scale;
mod trainer;

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::{Backend, Precision, Regions};
use base::{cores, screen};
use engine::{Batch, Graph, NodeCost, NodeTime};
use loaders::transform::exif_of;
use loaders::{Dataset, Io, Loader, Options, Pipeline, Split, TrainOrder};
use roofline::{Machine, Roofline};
use trainer::{BenchTrainer, Setting, Synthetic};

use crate::device::{Device, DeviceChoice, RequestedThreads, Resources};
use crate::error::Error;
use crate::train::device_input::DeviceInput;
use crate::train::plan::build::LOADER_NICE;
use crate::train::plan::network::network;

pub struct StepRequest {
    pub model: String,
    /// Height and width of the images. `None` selects the network's default size.
    pub size: Option<usize>,
    pub batch: usize,
    pub device: DeviceChoice,
    pub precision: Precision,
    /// True if f32 products may be rounded to tf32.
    pub tf32: bool,
    /// Compute threads. `None` uses all cores.
    pub threads: Option<usize>,
    pub profile: bool,
    /// True if every layer is compared with the peak rates of the cores and their memory.
    pub roofline: bool,
    /// How long to measure after the warm-up.
    pub seconds: f64,
}

impl StepRequest {
    fn work<D: Device>(&self) -> trainer::Workload<'_> {
        let requested = RequestedThreads { compute: self.threads, loader: None };
        let threads = Resources::of_process::<D>(requested).compute;
        let setting = Setting::alone(self.batch, threads, self.precision, self.tf32);
        trainer::Workload { model: &self.model, size: self.size, setting }
    }
}

pub struct StepResult {
    /// Height and width of the images.
    pub size: usize,
    pub threads: usize,
    /// Images per second of the median step.
    pub img_per_s: f64,
    /// Images per second of the fastest step.
    pub img_per_s_best: f64,
    /// Duration of the median step in milliseconds.
    pub step_ms: f64,
    pub steps: usize,
    /// Seconds from the start of the process to the end of the first step.
    pub first_step_s: f64,
    /// Anonymous and shared memory of the process after the last step in MB (10^6 bytes), without mapped files.
    pub memory_mb: f64,
    pub device: &'static str,
    /// Description of the device and its library.
    pub backend: String,
    /// Number of kernels, copies and fills in the last step. `None` on a device without a queue.
    pub launches: Option<u64>,
    /// Number of parallel regions in the last step. `None` if the device does not compute on this process's threads.
    pub regions: Option<Regions>,
    /// Duration of an empty parallel region in microseconds. `None` with a single thread, or if the device does not
    /// compute on this process's threads.
    pub barrier_us: Option<f64>,
    /// Table of milliseconds per layer, if requested.
    pub profile: Option<String>,
    /// Comparison of the layers with the machine's peak rates, if requested.
    pub roofline: Option<Roofline>,
}

const WARM_UP: usize = 3;

/// Times and counts of single steps.
#[derive(Default)]
struct StepTimes {
    times: Vec<Duration>,
    first_step_s: f64,
    /// Number of kernels, copies and fills in the last step. `None` on a device without a queue.
    launches: Option<u64>,
    regions: Option<Regions>,
}

/// Measures training steps (forward, backward and update). All steps use the same synthetic batch.
pub fn step<D: Device>(device: &D, request: &StepRequest, started: Instant) -> Result<StepResult, Error> {
    let work = request.work::<D>();
    let mut work = Synthetic::new(device.open(&work.setting.device)?, &work)?;
    if request.roofline && work.trainer.graph.backend().cores().is_none() {
        let why = format!("--roofline works only on a CPU, but this process computes on {}; add --device cpu", D::NAME);
        return Err(Error::Usage(why));
    }
    let step_times = take_steps(&mut work, request, started)?;
    // before the profile and the roofline, which need memory of their own
    let memory_mb = memory_mb();
    let costs = work.trainer.graph.profile(false);
    work.trainer.graph.take_notes().iter().for_each(|note| screen::say(note));
    let graph = &work.trainer.graph;
    let StepTimes { mut times, first_step_s, launches, regions } = step_times;
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
        threads: work.trainer.threads,
        img_per_s: rate(median),
        img_per_s_best: rate(times[0]),
        step_ms: median.as_secs_f64() * 1e3,
        steps,
        first_step_s,
        memory_mb,
        device: D::NAME,
        backend: graph.backend().describe(),
        launches,
        regions,
        barrier_us: cores.filter(|cores| cores.threads() > 1).map(|cores| 1e6 * cores.barrier()),
        profile: request.profile.then(|| profile_table(graph, &costs, steps)),
        roofline: machine.map(on),
    })
}

/// Runs the warm-up steps and then steps for the requested time, at least three. `times` in the result leaves out the
/// warm-up steps.
fn take_steps<B: Backend>(
    work: &mut Synthetic<B>,
    request: &StepRequest,
    started: Instant,
) -> Result<StepTimes, Error> {
    let (mut step_times, mut begin) = (StepTimes::default(), Instant::now());
    while step_times.times.len() < WARM_UP + 3 || begin.elapsed().as_secs_f64() < request.seconds {
        let (start, launches, regions) = (Instant::now(), work.trainer.launches(), work.trainer.regions());
        work.step_alone()?;
        if step_times.times.is_empty() {
            work.trainer.finish()?;
        }
        step_times.times.push(start.elapsed());
        step_times.launches = work.trainer.launches().zip(launches).map(|(now, before)| now - before);
        step_times.regions = work.trainer.regions().zip(regions).map(|(now, before)| now - before);
        if step_times.times.len() == 1 {
            step_times.first_step_s = started.elapsed().as_secs_f64();
        }
        if step_times.times.len() == WARM_UP {
            work.trainer.graph.profile(request.profile || request.roofline);
            begin = Instant::now();
        }
    }
    work.trainer.finish()?;
    step_times.times.drain(..WARM_UP);
    Ok(step_times)
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

/// Returns the anonymous and shared memory that this process uses now, in MB (10^6 bytes). Mapped files do not count.
pub fn memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb = |key: &str| -> f64 {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
    };
    (kb("RssAnon:") + kb("RssShmem:")) * 1024.0 / 1e6
}

/// Describes the processor: its model according to `/proc/cpuinfo` and the number of cores that this process may use.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor_model(&info).unwrap_or_else(|| "unknown".into());
    format!("{model}, {} for this process", base::text::plural(cores::available(), "core"))
}

/// Numbers of implementer and part that ARM processors of servers have in `/proc/cpuinfo`, and their names.
const ARM: [(&str, &str, &str); 6] = [
    ("0x41", "0xd0c", "Neoverse N1"),
    ("0x41", "0xd40", "Neoverse V1"),
    ("0x41", "0xd49", "Neoverse N2"),
    ("0x41", "0xd4f", "Neoverse V2"),
    ("0x41", "0xd84", "Neoverse V3"),
    ("0x46", "0x001", "A64FX"),
];

/// Returns the model of the first processor in the text of `/proc/cpuinfo`. On x86 it has a name, on ARM numbers.
fn processor_model(info: &str) -> Option<String> {
    let value = |key: &str| {
        info.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim())
        })
    };
    if let Some(name) = value("model name") {
        return Some(name.into());
    }
    let (implementer, part) = (value("CPU implementer")?, value("CPU part")?);
    let known = ARM.iter().find(|known| (known.0, known.1) == (implementer, part));
    Some(known.map_or_else(|| format!("ARM, implementer {implementer}, part {part}"), |known| known.2.into()))
}

pub struct LoaderStepRequest {
    pub dir: PathBuf,
    pub split: String,
    /// Transforms, written as in a recipe.
    pub transforms: Vec<String>,
    pub model: String,
    pub batch: usize,
    pub device: DeviceChoice,
    pub precision: Precision,
    /// True if f32 products may be rounded to tf32.
    pub tf32: bool,
    /// Compute threads. `None` uses all cores.
    pub threads: Option<usize>,
    /// Loader threads. `None` uses the remaining cores.
    pub loader_threads: Option<usize>,
    /// How the loader reads records.
    pub io: Io,
    /// How long to measure after the warm-up.
    pub seconds: f64,
}

pub struct LoaderStepResult {
    pub threads: usize,
    pub loader_threads: usize,
    /// Images per second: mean over the measured time.
    pub img_per_s: f64,
    pub steps: usize,
    /// Milliseconds per step: mean over the measured time.
    pub step_ms: f64,
    /// Mean time per step that the host waits for the loader, in milliseconds. A device that works ahead may compute
    /// during this wait.
    pub data_wait_ms: f64,
    /// Mean number of batches that were ready when a step requested the next.
    pub queue_depth: f64,
    /// Form in which images are passed to the device, such as `values`.
    pub input: String,
    pub device: &'static str,
    /// Description of the device and its library.
    pub backend: String,
    /// Advice on how to make the loader faster.
    pub advice: String,
}

/// Measures training steps on images that a loader reads from a data set.
pub fn run_loader_step<D: Device>(device: &D, request: &LoaderStepRequest) -> Result<LoaderStepResult, Error> {
    let dataset = Dataset::open(&request.dir)?;
    let split = Arc::new(dataset.split(&request.split)?);
    let pipeline =
        Pipeline::new(&request.transforms, split.images_as(exif_of(&request.transforms))?, &dataset.manifest, 1)?;
    let batch = request.batch.min(split.len() as usize);
    if batch == 0 {
        return Err(Error::Failed(format!(
            "data set {}: the split {} has no images; choose another with --split",
            request.dir.display(),
            request.split
        )));
    }
    let net = network(&request.model, pipeline.output(), split.classes())?;
    let requested = RequestedThreads { compute: request.threads, loader: request.loader_threads };
    let Resources { compute: threads, loader: loader_threads, .. } = Resources::of_process::<D>(requested);
    let setting = Setting::alone(batch, threads, request.precision, request.tf32);
    let mut trainer = BenchTrainer::new(device.open(&setting.device)?, net, &setting)?;
    // plan for the last batch of an epoch too, which is smaller
    trainer.graph.prepare(split.len() as usize % batch)?;
    let mut feed = Feed::new(trainer.graph.backend(), split, &pipeline, batch, (loader_threads, request.io))?;
    let (mut begin, mut before) = (Instant::now(), feed.loader.stats());
    let (mut steps, mut images) = (0, 0);
    while steps < WARM_UP + 3 || begin.elapsed().as_secs_f64() < request.seconds {
        let rows = feed.step(&mut trainer)?;
        (steps, images) = (steps + 1, images + rows);
        if steps == WARM_UP {
            trainer.finish()?;
            (begin, before, images) = (Instant::now(), feed.loader.stats(), 0);
        }
    }
    trainer.finish()?;
    let (time, stats, steps) = (begin.elapsed(), feed.loader.stats() - before, steps - WARM_UP);
    let each = |time: Duration| time.as_secs_f64() * 1e3 / steps as f64;
    Ok(LoaderStepResult {
        threads: trainer.threads,
        loader_threads,
        img_per_s: images as f64 / time.as_secs_f64(),
        steps,
        step_ms: each(time),
        data_wait_ms: each(stats.wait),
        queue_depth: stats.depth(),
        input: feed.input.describe(),
        device: D::NAME,
        backend: trainer.graph.backend().describe(),
        advice: stats.advice(time, loader_threads, feed.loader.maps_local_files()),
    })
}

/// Moves batches from the loader to the device, as in training.
struct Feed {
    loader: Loader,
    input: DeviceInput,
    /// The batch whose copy to the device has already begun.
    next: Option<loaders::Batch>,
}

impl Feed {
    fn new<B: Backend>(
        backend: &B,
        split: Arc<Split>,
        pipeline: &Pipeline,
        batch: usize,
        (threads, io): (usize, Io),
    ) -> Result<Self, Error> {
        let input = DeviceInput::new(backend, pipeline);
        let order = TrainOrder::new(1, split.len(), batch, 1, 0..1, (0, 0), u32::MAX);
        let options = Options { threads, io, nice: LOADER_NICE, ..Options::default() };
        let loader = input.start(&split, pipeline, Box::new(order), options)?;
        Ok(Self { loader, input, next: None })
    }

    /// Trains on a batch and returns its number of images.
    fn step<B: Backend>(&mut self, trainer: &mut BenchTrainer<B>) -> Result<usize, Error> {
        let batch = match self.next.take() {
            Some(batch) => Some(batch),
            None => self.loader.next()?,
        };
        let Some(batch) = batch.filter(|batch| !batch.is_empty()) else { return Ok(0) };
        trainer.graph.prepare(batch.len())?;
        let images = self.input.input(&batch);
        trainer.enqueue(Batch { images, labels: batch.labels(), ids: batch.keys(), epoch: batch.epoch() })?;
        if trainer.graph.backend().queue().is_some() && self.loader.is_ready() {
            self.next = self.loader.next()?;
            let next = self.next.as_ref().filter(|batch| !batch.is_empty());
            next.map_or(Ok(()), |batch| trainer.graph.prefetch(self.input.input(batch)))?;
        }
        trainer.read()?;
        Ok(batch.len())
    }
}

#[cfg(test)]
mod tests {
    use super::processor_model;

    #[test]
    fn processors_of_x86_and_arm_are_named() {
        let arm =
            |part: &str| format!("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {part}\n");
        assert_eq!(processor_model("processor\t: 0\nmodel name\t: AMD EPYC 9654\n").as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(processor_model(&arm("0xd4f")).as_deref(), Some("Neoverse V2"));
        assert_eq!(processor_model(&arm("0xfff")).as_deref(), Some("ARM, implementer 0x41, part 0xfff"));
        assert_eq!(processor_model(""), None);
    }
}

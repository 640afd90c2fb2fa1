//! Measurements: the training step on data in memory; below, the step on images that a loader reads, the sum over ranks and how steps
//! scale.

pub mod allreduce;
pub mod operation;
pub mod ops;
pub mod roofline;
pub mod scale;
mod trained;

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
use trained::{Setting, Synthetic, Trained};

use crate::device::{Device, DeviceChoice};
use crate::error::Error;
use crate::train::device_input::DeviceInput;
use crate::train::plan::build::LOADER_NICE;
use crate::train::plan::network::network;

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
    fn work(&self) -> trained::Work<'_> {
        let StepRequest { model, size, batch, threads, precision, tf32, .. } = self;
        let (batch, threads, precision, tf32) = (*batch, *threads, *precision, *tf32);
        let setting = Setting { batch, threads, precision, tf32, node_rank: 0, exchanged: false };
        trained::Work { model, size: *size, setting }
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

/// What `trireme bench loader+step` measures.
pub struct LoaderStepRequest {
    /// Folder of the data set.
    pub dir: PathBuf,
    /// Its split.
    pub split: String,
    /// Transforms, as in a recipe.
    pub transforms: Vec<String>,
    /// Network.
    pub model: String,
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
    /// Loader threads.
    pub loader_threads: usize,
    /// How records are read.
    pub io: Io,
    /// How long, after the warm-up.
    pub seconds: f64,
}

/// What came out.
pub struct LoaderStepResult {
    /// Compute threads.
    pub threads: usize,
    /// Over the whole time.
    pub img_per_s: f64,
    /// Steps measured.
    pub steps: usize,
    /// Mean.
    pub step_ms: f64,
    /// Mean wait of the host for the loader in a step; a device that works ahead waits less.
    pub data_wait_ms: f64,
    /// How many batches were ready when one was requested, on average.
    pub queue_depth: f64,
    /// How images reach the device.
    pub input: &'static str,
    /// Kind of device.
    pub device: &'static str,
    /// Device and library.
    pub backend: String,
    /// What would make the loader faster.
    pub advice: String,
}

/// Loads and trains.
pub fn run_loader_step<D: Device>(device: &D, request: &LoaderStepRequest) -> Result<LoaderStepResult, Error> {
    let dataset = Dataset::open(&request.dir)?;
    let split = Arc::new(dataset.split(&request.split)?);
    let pipeline =
        Pipeline::new(&request.transforms, split.images_as(exif_of(&request.transforms))?, &dataset.manifest, 1)?;
    let batch = request.batch.min(split.len() as usize);
    if batch == 0 {
        let what = format!("its split {} has no images", request.split);
        return Err(Error::DataSet { data: request.dir.display().to_string(), what });
    }
    let net = network(&request.model, pipeline.output(), split.classes())?;
    let LoaderStepRequest { threads, precision, tf32, .. } = *request;
    let setting = Setting { batch, threads, precision, tf32, node_rank: 0, exchanged: false };
    let mut trained = Trained::new(device, net, &setting)?;
    // the last batch of an epoch
    trained.graph.prepare(split.len() as usize % batch)?;
    let mut feed = Feed::new(trained.graph.backend(), split, &pipeline, batch, request)?;
    let (mut begin, mut before) = (Instant::now(), feed.loader.stats());
    let (mut steps, mut images) = (0, 0);
    while steps < WARM_UP + 3 || begin.elapsed().as_secs_f64() < request.seconds {
        let rows = feed.step(&mut trained)?;
        (steps, images) = (steps + 1, images + rows);
        if steps == WARM_UP {
            trained.finish()?;
            (begin, before, images) = (Instant::now(), feed.loader.stats(), 0);
        }
    }
    trained.finish()?;
    let (time, stats, steps) = (begin.elapsed(), feed.loader.stats() - before, steps - WARM_UP);
    let each = |time: Duration| time.as_secs_f64() * 1e3 / steps as f64;
    Ok(LoaderStepResult {
        threads: trained.threads,
        img_per_s: images as f64 / time.as_secs_f64(),
        steps,
        step_ms: each(time),
        data_wait_ms: each(stats.wait),
        queue_depth: stats.depth(),
        input: feed.input.describe(),
        device: D::NAME,
        backend: trained.graph.backend().describe(),
        advice: stats.advice(time, request.loader_threads, feed.loader.maps_local_files()),
    })
}

/// Batches on their way to the device, as in training.
struct Feed {
    loader: Loader,
    input: DeviceInput,
    /// A batch whose copy to the device began early.
    next: Option<loaders::Batch>,
}

impl Feed {
    fn new<B: Backend>(
        backend: &B,
        split: Arc<Split>,
        pipeline: &Pipeline,
        batch: usize,
        request: &LoaderStepRequest,
    ) -> Result<Self, Error> {
        let input = DeviceInput::new(backend, pipeline);
        let order = TrainOrder::new(1, split.len(), batch, 1, 0..1, (0, 0), u32::MAX);
        let options =
            Options { threads: request.loader_threads, io: request.io, nice: LOADER_NICE, ..Options::default() };
        let loader = input.start(&split, pipeline, Box::new(order), options)?;
        Ok(Self { loader, input, next: None })
    }

    /// One step; gives its images.
    fn step<B: Backend>(&mut self, trained: &mut Trained<B>) -> Result<usize, Error> {
        let batch = match self.next.take() {
            Some(batch) => Some(batch),
            None => self.loader.next()?,
        };
        let Some(batch) = batch.filter(|batch| !batch.is_empty()) else { return Ok(0) };
        trained.graph.prepare(batch.len())?;
        let images = self.input.input(&batch);
        trained.enqueue(Batch { images, labels: batch.labels(), ids: batch.ids(), epoch: batch.epoch() })?;
        if trained.graph.backend().queue().is_some() && self.loader.is_ready() {
            self.next = self.loader.next()?;
            let next = self.next.as_ref().filter(|batch| !batch.is_empty());
            next.map_or(Ok(()), |batch| trained.graph.prefetch(self.input.input(batch)))?;
        }
        trained.read()?;
        Ok(batch.len())
    }
}

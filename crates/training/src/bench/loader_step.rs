//! The training step on images that a loader reads: does the device wait for them?

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::{Backend, Precision};
use engine::Batch;
use loaders::transform::exif_of;
use loaders::{Dataset, Io, Loader, Options, Pipeline, Split, TrainOrder};

use super::WARM_UP;
use super::trained::{Setting, Trained};
use crate::device::{Device, DeviceChoice};
use crate::error::Error;
use crate::train::device_input::DeviceInput;
use crate::train::plan::build::LOADER_NICE;
use crate::train::plan::network::network;

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
pub fn run<D: Device>(device: &D, request: &LoaderStepRequest) -> Result<LoaderStepResult, Error> {
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

//! A network with SGD and momentum for benchmarks, and a batch of random images for it.

use backend::{Backend, Cores, Error as BackendError, Input, Precision, Queue, Regions};
use engine::optim::{Optimizer, OptimizerSpec};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use loaders::{Draws, ImageSpec, memory};
use net::{NetSpec, Shape, models};

use super::exchange::Exchange;
use crate::device::DeviceSettings;
use crate::error::Error;
use crate::train::plan::network::network;

/// Bytes of a gradient bucket if gradients are exchanged. This is the default of `reduce.bucket_mb`.
const BUCKET: usize = 4_000_000;

const RATE: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub batch: usize,
    pub device: DeviceSettings,
    /// True if gradients are exchanged with other ranks.
    pub exchanged: bool,
}

impl Setting {
    /// Returns the settings for a single rank.
    pub fn alone(batch: usize, threads: usize, precision: Precision, tf32: bool) -> Self {
        let device = DeviceSettings { threads, node_rank: 0, node_ranks: 1, precision, tf32, deterministic: false };
        Self { batch, device, exchanged: false }
    }
}

/// A network that trains with SGD.
pub struct BenchTrainer<B: Backend> {
    pub graph: Graph<B>,
    pub threads: usize,
    optimizer: Optimizer<B>,
    /// Number of passes that may be enqueued before the loss of an earlier pass is read.
    ahead: usize,
    /// Number of passes whose loss was not read yet.
    unread: usize,
}

impl<B: Backend> BenchTrainer<B> {
    /// Plans the network on a device that was opened with the settings.
    pub fn new(backend: B, net: NetSpec, setting: &Setting) -> Result<Self, Error> {
        let Setting { batch, device: settings, exchanged } = *setting;
        let ahead = backend.queue().map_or(0, Queue::passes_ahead);
        let bucket_bytes = if exchanged || backend.queue().is_none() { BUCKET } else { usize::MAX };
        let graph = Graph::new(backend, net, batch, Purpose::Train { bucket_bytes }, 1)?;
        let optimizer = Optimizer::new(&graph, &OptimizerSpec::sgd(0.9, false, 1e-4))?;
        Ok(Self { graph, threads: settings.threads, optimizer, ahead, unread: 0 })
    }

    /// Runs a step in the same order as training. `exchange` sums the gradients. If the host works ahead of the device,
    /// the device may still be computing this step on return.
    pub fn step_summed(&mut self, batch: Batch<'_>, exchange: &mut Exchange<B>) -> Result<(), Error> {
        if self.ahead > 0 {
            self.optimizer.announce(&self.graph, RATE, None)?;
        }
        let mut ready = |bucket, gradients| exchange.ready(bucket, gradients);
        self.graph.start::<Error>(batch, loss(&batch), MicroBatch::ONLY, Some(&mut ready))?;
        self.unread += 1;
        if self.ahead == 0 {
            self.read_until(0)?;
        }
        exchange.finish(&mut self.graph)?;
        self.optimizer.start_step(&mut self.graph, RATE, None)?;
        self.read_until(self.ahead)
    }

    /// Starts a step without an exchange, as training on a single rank does. Call [`BenchTrainer::read`] next, which
    /// completes the step.
    pub fn enqueue(&mut self, batch: Batch<'_>) -> Result<(), Error> {
        let loss = loss(&batch);
        if self.ahead == 0 {
            self.graph.start::<BackendError>(batch, loss, MicroBatch::ONLY, None)?;
        } else {
            self.optimizer.step_with_pass(&mut self.graph, batch, loss, RATE, None)?;
        }
        self.unread += 1;
        Ok(())
    }

    /// Reads the losses of earlier steps and, if the device does not work ahead, updates the weights. If it works
    /// ahead, the losses of its last passes stay unread.
    pub fn read(&mut self) -> Result<(), Error> {
        self.read_until(self.ahead)?;
        if self.ahead == 0 {
            self.optimizer.step(&mut self.graph, RATE, None)?;
        }
        Ok(())
    }

    pub fn finish(&mut self) -> Result<(), Error> {
        self.read_until(0)
    }

    fn read_until(&mut self, left: usize) -> Result<(), Error> {
        while self.unread > left {
            self.graph.sums()?;
            self.unread -= 1;
        }
        Ok(())
    }

    /// Returns the number of parallel regions so far, or `None` if the device does not compute on this process's
    /// threads.
    pub fn regions(&self) -> Option<Regions> {
        self.graph.backend().cores().map(Cores::regions)
    }

    /// Returns the number of kernels, copies and fills enqueued so far, or `None` on a device without a queue.
    pub fn launches(&self) -> Option<u64> {
        self.graph.backend().queue().map(Queue::launches)
    }
}

fn loss(batch: &Batch<'_>) -> Loss {
    Loss { smoothing: 0.0, scale: 1.0 / batch.labels.len() as f32 }
}

#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// Name in the catalogue of networks.
    pub model: &'a str,
    /// Height and width of the images. `None` selects the network's default size.
    pub size: Option<usize>,
    pub setting: Setting,
}

/// A network that trains on the same random batch in every step. If the device has a queue, the batch is uploaded only
/// once, before the first step.
pub struct Synthetic<B: Backend> {
    pub trainer: BenchTrainer<B>,
    synthetic_batch: SyntheticBatch,
}

struct SyntheticBatch {
    /// Empty if the images are already stored on the device.
    images: Vec<f32>,
    labels: Vec<u32>,
    ids: Vec<u64>,
}

impl SyntheticBatch {
    fn batch(&self) -> Batch<'_> {
        let images = if self.images.is_empty() { Input::Held(self.ids.len()) } else { Input::Values(&self.images) };
        Batch { images, labels: &self.labels, ids: &self.ids, epoch: 0 }
    }
}

impl<B: Backend> Synthetic<B> {
    /// Plans the network on a device that was opened with the workload's settings, and draws the batch.
    pub fn new(backend: B, work: &Workload<'_>) -> Result<Self, Error> {
        let (model, batch) = (work.model, work.setting.batch);
        let unknown = || Error::Usage(models::unknown(model));
        let (meant, classes) = models::input(model).zip(models::classes(model)).ok_or_else(unknown)?;
        let shape = work.size.map_or(meant, |px| Shape::image(meant.c, px, px));
        let factors = [batch, shape.c, shape.h, shape.w].map(|factor| factor as u64);
        let bytes = factors.into_iter().fold(size_of::<f32>() as u64, u64::saturating_mul);
        memory::check("a batch of images", bytes, "a smaller --batch or --size")?;
        let net = network(model, ImageSpec::new(shape.h as u32, shape.w as u32, shape.c as u32), classes)?;
        let trainer = BenchTrainer::new(backend, net, &work.setting)?;
        let mut draws = Draws::new(1, 0, 0, 0);
        let mut images: Vec<f32> = (0..batch * shape.elems()).map(|_| 2.0 * draws.unit() - 1.0).collect();
        if let Some(queue) = trainer.graph.backend().queue() {
            queue.hold(&images)?;
            images = Vec::new();
        }
        let labels = (0..batch).map(|i| (i % classes) as u32).collect();
        Ok(Self { trainer, synthetic_batch: SyntheticBatch { images, labels, ids: (0..batch as u64).collect() } })
    }

    /// Runs a step and sums its gradients with `exchange`, see [`BenchTrainer::step_summed`].
    pub fn step_summed(&mut self, exchange: &mut Exchange<B>) -> Result<(), Error> {
        self.trainer.step_summed(self.synthetic_batch.batch(), exchange)
    }

    /// Runs a step without an exchange, as training on a single rank does. A device that works ahead has not finished
    /// it on return.
    pub fn step_alone(&mut self) -> Result<(), Error> {
        self.trainer.enqueue(self.synthetic_batch.batch())?;
        self.trainer.read()
    }
}

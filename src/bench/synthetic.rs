//! A network that trains on one made-up batch, again and again: what benches of the step run.

use crate::backend::op::Shape;
use crate::backend::{Backend, Input, Precision};
use crate::cores;
use crate::device::{Device, DeviceSettings};
use crate::error::Error;
use crate::models;
use crate::nn::{Batch, Graph, Loss, MicroBatch, Purpose};
use crate::optim::{Optimizer, Policy, Sgd};
use crate::recipe;
use crate::train::plan::source::network;
use loaders::{Draws, ImageSpec};

/// Bytes of a gradient chunk: the default of `reduce.bucket_mb`.
const BUCKET: usize = 4_000_000;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// A network of the catalogue.
    pub model: &'a str,
    /// Height and width of the images; `None` = what the network is meant for.
    pub size: Option<usize>,
    /// Images a step.
    pub batch: usize,
    /// Compute threads; `None` = as many as the kind of device takes of all cores.
    pub threads: Option<usize>,
    /// Number format of the arithmetic.
    pub precision: Precision,
    /// Whether products of f32 may be rounded to tf32.
    pub tf32: bool,
    /// This rank's number on its node.
    pub node_rank: usize,
}

/// Network, optimizer, batch.
pub struct Synthetic<B: Backend> {
    /// The network.
    pub graph: Graph<B>,
    /// Compute threads.
    pub threads: usize,
    optimizer: Optimizer<B>,
    images: Vec<f32>,
    labels: Vec<u32>,
    ids: Vec<u64>,
}

impl<B: Backend> Synthetic<B> {
    /// On this kind of device.
    pub fn new<D: Device<Backend = B>>(device: &D, work: &Work<'_>) -> Result<Self, Error> {
        let Work { model, size, batch, threads, precision, node_rank, .. } = *work;
        let names = models::names();
        let unknown = || Error::Usage(format!("no network {model}{}", recipe::did_you_mean(model, &names)));
        let (meant, classes) = models::input(model).zip(models::classes(model)).ok_or_else(unknown)?;
        let shape = size.map_or(meant, |px| Shape::image(meant.c, px, px));
        let net = network(model, ImageSpec::new(shape.h as u32, shape.w as u32, shape.c as u32), classes)?;
        let threads = threads.unwrap_or_else(|| device.threads(cores::affinity().len()));
        let (tf32, deterministic) = (work.tf32, false);
        let backend = device.open(&DeviceSettings { threads, node_rank, precision, tf32, deterministic })?;
        let graph = Graph::new(backend, net, batch, Purpose::Train { chunk_bytes: BUCKET }, 1)?;
        let policy = Policy {
            decay: |_: &str, _: &[usize]| 1e-4,
            adapt: |_: &str, _: &[usize]| false,
            clip_norm: None,
            clip_value: None,
        };
        let optimizer = Optimizer::new(&graph, Box::new(Sgd::new(0.9, false)), policy)?;
        let mut draws = Draws::new(1, 0, 0, 0);
        let images = (0..batch * shape.elems()).map(|_| 2.0 * draws.unit() - 1.0).collect();
        let labels = (0..batch).map(|i| (i % classes) as u32).collect();
        Ok(Self { graph, threads, optimizer, images, labels, ids: (0..batch as u64).collect() })
    }

    /// Forward, backward, `exchange`, update.
    pub fn step(&mut self, exchange: impl FnOnce(&mut Graph<B>) -> Result<(), Error>) -> Result<(), Error> {
        let batch = Batch { images: Input::Values(&self.images), labels: &self.labels, ids: &self.ids, epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / self.ids.len() as f32 };
        self.graph.train::<Error>(batch, loss, MicroBatch::ONLY, None)?;
        exchange(&mut self.graph)?;
        self.optimizer.step(&mut self.graph, 1e-3, None)?;
        Ok(())
    }
}

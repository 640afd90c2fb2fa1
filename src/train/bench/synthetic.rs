//! A network that trains on one made-up batch, again and again: what benches of the step run.

use crate::backend::Input;
use crate::backend::cpu::Cpu;
use crate::backend::op::Shape;
use crate::models;
use crate::nn::{Batch, Graph, Loss, Purpose, Turn};
use crate::optim::{Optimizer, Policy, sgd::Sgd};
use crate::recipe;
use crate::train::prepare::network;
use crate::train::{Error, cores};
use loaders::{Draws, ImageSpec};

/// Bytes of a gradient chunk: the default of `reduce.bucket_mb`.
const BUCKET: usize = 4_000_000;

/// Network, optimizer, batch.
pub struct Synthetic {
    /// The network.
    pub graph: Graph<Cpu>,
    /// Compute threads.
    pub threads: usize,
    optimizer: Optimizer<Cpu>,
    images: Vec<f32>,
    labels: Vec<u32>,
    ids: Vec<u64>,
}

impl Synthetic {
    /// A network of the catalogue for images of `size` squared, or those that it is meant for; `threads` = `None` takes all
    /// cores.
    pub fn new(model: &str, size: Option<usize>, batch: usize, threads: Option<usize>) -> Result<Self, Error> {
        let names = models::names();
        let unknown = || Error::Usage(format!("no network {model}{}", recipe::did_you_mean(model, &names)));
        let (meant, classes) = models::input(model).zip(models::classes(model)).ok_or_else(unknown)?;
        let shape = size.map_or(meant, |px| Shape::image(meant.c, px, px));
        let net = network(model, ImageSpec::new(shape.h as u32, shape.w as u32, shape.c as u32), classes)?;
        let threads = threads.unwrap_or_else(|| cores::affinity().len());
        let graph = Graph::new(Cpu::new(threads)?, net, batch, Purpose::Train { chunk_bytes: BUCKET }, 1)?;
        let policy = Policy {
            decay: |_: &str, _: &[usize]| 1e-4,
            adapt: |_: &str, _: &[usize]| false,
            clip_norm: None,
            clip_value: None,
        };
        let optimizer = Optimizer::new(&graph, Box::new(Sgd { momentum: 0.9, nesterov: false }), policy)?;
        let mut draws = Draws::new(1, 0, 0, 0);
        let images = (0..batch * shape.elems()).map(|_| 2.0 * draws.unit() - 1.0).collect();
        let labels = (0..batch).map(|i| (i % classes) as u32).collect();
        Ok(Self { graph, threads, optimizer, images, labels, ids: (0..batch as u64).collect() })
    }

    /// Forward, backward, `exchange`, update.
    pub fn step(&mut self, exchange: impl FnOnce(&mut Graph<Cpu>) -> Result<(), Error>) -> Result<(), Error> {
        let batch = Batch { images: Input::Values(&self.images), labels: &self.labels, ids: &self.ids, epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / self.ids.len() as f32 };
        self.graph.train::<Error>(batch, loss, Turn::ONLY, None)?;
        exchange(&mut self.graph)?;
        self.optimizer.step(&mut self.graph, 1e-3)?;
        Ok(())
    }
}

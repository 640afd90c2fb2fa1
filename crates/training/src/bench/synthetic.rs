//! A network that trains on one made-up batch, again and again: what benches of the step run. A device that keeps batches has it from the
//! start, so that no step copies it.

use backend::{Backend, Input};
use engine::{Batch, Graph};
use loaders::{Draws, ImageSpec, memory};
use net::Shape;
use net::models;

use super::trained::{Setting, Trained};
use crate::device::Device;
use crate::error::Error;
use crate::train::plan::network::network;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// A network of the catalogue.
    pub model: &'a str,
    /// Height and width of the images; `None` = what the network is meant for.
    pub size: Option<usize>,
    /// On what.
    pub setting: Setting,
}

/// Network, optimizer, batch.
pub struct Synthetic<B: Backend> {
    /// Network and optimizer.
    pub trained: Trained<B>,
    made_up: MadeUp,
}

/// The batch.
struct MadeUp {
    /// Empty where the device keeps them.
    images: Vec<f32>,
    labels: Vec<u32>,
    ids: Vec<u64>,
}

impl MadeUp {
    fn batch(&self) -> Batch<'_> {
        let images = if self.images.is_empty() { Input::Held(self.ids.len()) } else { Input::Values(&self.images) };
        Batch { images, labels: &self.labels, ids: &self.ids, epoch: 0 }
    }
}

impl<B: Backend> Synthetic<B> {
    /// On this kind of device.
    pub fn new<D: Device<Backend = B>>(device: &D, work: &Work<'_>) -> Result<Self, Error> {
        let (model, batch) = (work.model, work.setting.batch);
        let unknown = || Error::Usage(models::unknown(model));
        let (meant, classes) = models::input(model).zip(models::classes(model)).ok_or_else(unknown)?;
        let shape = work.size.map_or(meant, |px| Shape::image(meant.c, px, px));
        let factors = [batch, shape.c, shape.h, shape.w].map(|factor| factor as u64);
        let bytes = factors.into_iter().fold(size_of::<f32>() as u64, u64::saturating_mul);
        memory::check("a batch of images", bytes, "a smaller --batch or --size")?;
        let net = network(model, ImageSpec::new(shape.h as u32, shape.w as u32, shape.c as u32), classes)?;
        let trained = Trained::new(device, net, &work.setting)?;
        let mut draws = Draws::new(1, 0, 0, 0);
        let mut images: Vec<f32> = (0..batch * shape.elems()).map(|_| 2.0 * draws.unit() - 1.0).collect();
        if let Some(queue) = trained.graph.backend().queue() {
            queue.hold(&images)?;
            images = Vec::new();
        }
        let labels = (0..batch).map(|i| (i % classes) as u32).collect();
        Ok(Self { trained, made_up: MadeUp { images, labels, ids: (0..batch as u64).collect() } })
    }

    /// Forward, backward, `exchange`, update.
    pub fn step(&mut self, exchange: impl FnOnce(&mut Graph<B>) -> Result<(), Error>) -> Result<(), Error> {
        self.trained.step(self.made_up.batch(), exchange)
    }

    /// A step without an exchange, as training on one rank does it: a device that works ahead has not finished it.
    pub fn step_alone(&mut self) -> Result<(), Error> {
        self.trained.enqueue(self.made_up.batch())?;
        self.trained.read()
    }
}

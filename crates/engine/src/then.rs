//! A pass with the optimizer's step behind it: where gradients stay on this rank, nothing of the host comes in between.

use std::hash::{DefaultHasher, Hash, Hasher};

use backend::{Arena, Backend, Error};

use super::graph::{Batch, Graph, Loss};
use super::replay::{Kind, Leaves};

/// What follows a pass: passes over the parameters and their gradients, and a key of all other memory that it uses.
pub struct Then<'a, B: Backend> {
    /// See [`Queue::repeat`](backend::Queue::repeat).
    pub key: u64,
    /// Whether its passes read gradients by [`Backend::update`] alone: these then need not be complete, see
    /// [`Backend::gradients_done`].
    pub only_updates: bool,
    /// Is called at most once, or twice where it cannot be recorded.
    pub work: After<'a, B>,
}

type After<'a, B> = &'a mut dyn FnMut(&B, &mut Arena<B>, &mut Arena<B>) -> Result<(), Error>;

impl<B: Backend> Graph<B> {
    /// [`Graph::start`] of a rank's last worker, whose gradients stay here, with `then` behind it: where the device replays its passes,
    /// both are one. The device must have a queue, and the batch samples. With `only_updates` the gradients are of no use afterwards.
    pub fn start_then(&mut self, batch: Batch<'_>, loss: Loss, then: Then<'_, B>) -> Result<(), Error> {
        self.begin(&batch, Some(loss), true)?;
        let mut hasher = DefaultHasher::new();
        let leaves = if then.only_updates { Leaves::ForUpdate } else { Leaves::Sum };
        (self.digest(Kind::Gradients(leaves)), then.key).hash(&mut hasher);
        let Then { work, .. } = then;
        self.enqueue_as("the step", hasher.finish(), &mut |graph| {
            graph.forward_and_backward::<Error>(&batch, loss, leaves, &mut None)?;
            work(&graph.backend, &mut graph.weights, &mut graph.grads)
        })?;
        self.hand_over_all::<Error>(&mut None)?;
        self.earlier.clear();
        Ok(())
    }
}

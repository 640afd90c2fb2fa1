//! Runs a pass as one piece of work that a device with a queue can replay, either by itself or together with the
//! optimizer step.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use backend::{Arena, Backend, Buffer, Error};
use net::Shape;

use super::graph::Graph;
use super::params::Parameters;
use super::request::{Batch, Kind, Loss, PassGradients};

impl<B: Backend> Graph<B> {
    /// Runs a pass. A device with a queue replays it if possible. Passes that contain sums over ranks, and passes with
    /// timed layers, are enqueued each time instead.
    pub(super) fn enqueue(
        &mut self,
        kind: Kind,
        work: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.enqueue_as(kind.name(), self.digest(kind), work)
    }

    /// Like [`Graph::enqueue`], with a name for the log and a key that identifies all memory that the work uses.
    pub(super) fn enqueue_as(
        &mut self,
        name: &str,
        key: u64,
        work: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (backend, not_replayable) = (Rc::clone(&self.backend), self.across.is_some() || self.pass.clock.runs());
        match backend.queue().filter(|_| !not_replayable) {
            Some(queue) => queue.repeat(name, key, &mut || work(self)),
            None => work(self),
        }
    }

    /// Returns a hash of the kind of a pass, its batch and image size, and all addresses that may differ between passes
    /// of this kind.
    pub(super) fn digest(&self, kind: Kind) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Shape { c, h, w } = self.input();
        let Parameters { weights, gradients, earlier, frozen, .. } = &self.parameters;
        (kind, self.pass.rows, [c, h, w], frozen).hash(&mut hasher);
        let arenas = [weights, gradients].into_iter().chain(earlier.alive());
        arenas.flat_map(|arena| &arena.buckets).for_each(|bucket| bucket.place().hash(&mut hasher));
        hasher.finish()
    }
}

// A pass followed by the optimizer step. If gradients stay on this rank, the host has nothing to do between the two.

type UpdateWork<'a, B> = &'a mut dyn FnMut(&B, &mut Arena<B>, &mut Arena<B>) -> Result<(), Error>;

impl<B: Backend> Graph<B> {
    /// Runs [`Graph::start`] for a rank's last worker, then `work`, which changes the parameters. A device with a queue
    /// replays both together. The gradients must stay on this rank, the device must have a queue, and the batch must
    /// have samples.
    ///
    /// `key` identifies all other memory that `work` uses, see [`Queue::repeat`](backend::Queue::repeat). If a recorded
    /// graph is replayed, `work` is not called. Otherwise it is called once, or a second time if the device refuses to
    /// record it. With `only_updates`, nothing but [`Backend::update`] may read the gradients, so they need not be
    /// completed (see [`Backend::gradients_done`]) and are undefined afterwards.
    pub(crate) fn start_with_follow_up(
        &mut self,
        batch: Batch<'_>,
        loss: Loss,
        key: u64,
        only_updates: bool,
        work: UpdateWork<'_, B>,
    ) -> Result<(), Error> {
        self.begin(&batch, Some(loss), true, false)?;
        let mut hasher = DefaultHasher::new();
        let wanted = if only_updates { PassGradients::ForUpdate } else { PassGradients::Sum };
        (self.digest(Kind::Gradients(wanted)), key).hash(&mut hasher);
        self.enqueue_as("the step", hasher.finish(), &mut |graph| {
            graph.forward_and_backward::<Error>(&batch, loss, wanted, &mut None)?;
            let (backend, weights, gradients) = graph.to_update();
            work(backend, weights, gradients)
        })?;
        self.parameters.hand_over_all::<Error>(&self.plan.layout, &mut None)?;
        self.parameters.earlier.clear();
        Ok(())
    }
}

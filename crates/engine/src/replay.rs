//! The device's part of a pass as one piece of work, which a device with a queue replays, alone or followed by the optimizer's step.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use backend::{Arena, Backend, Buffer, Error};
use net::Shape;

use super::graph::{Batch, Graph, Loss};
use super::params::Parameters;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Scores,
    Loss,
    Gradients(PassGradients),
}

/// The gradients that a training pass leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PassGradients {
    /// One worker's; others of this rank follow.
    Own,
    /// Those of all workers of this rank.
    Sum,
    /// The same, but only for the update that comes next, which finds them wherever the device has them.
    ForUpdate,
}

impl PassGradients {
    /// Whether no worker of this rank follows.
    pub(super) fn last(self) -> bool {
        self != PassGradients::Own
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Scores | Kind::Loss => "the scoring pass",
            Kind::Gradients(_) => "the training pass",
        }
    }
}

impl<B: Backend> Graph<B> {
    /// Runs the device's part of a pass; a device with a queue replays it where it can. Passes that sum over ranks in between, and
    /// those whose layers are timed, are enqueued anew each time.
    pub(super) fn enqueue(
        &mut self,
        kind: Kind,
        work: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.enqueue_as(kind.name(), self.digest(kind), work)
    }

    /// The same, with a name for the log and a key of all memory that the work uses.
    pub(super) fn enqueue_as(
        &mut self,
        name: &str,
        key: u64,
        work: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (backend, anew) = (Rc::clone(&self.backend), self.across.is_some() || self.pass.clock.runs());
        match backend.queue().filter(|_| !anew) {
            Some(queue) => queue.repeat(name, key, &mut || work(self)),
            None => work(self),
        }
    }

    /// The key of a pass: its kind, and the addresses of all memory that may differ between passes of the kind.
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

// A pass followed by the optimizer's step: if gradients stay on this rank, the host does nothing in between.

/// What follows a pass: passes over the parameters and their gradients, and a key of all other memory that it uses.
pub struct FollowUp<'a, B: Backend> {
    /// See [`Queue::repeat`](backend::Queue::repeat).
    pub key: u64,
    /// Whether its passes read gradients by [`Backend::update`] alone: these then need not be complete, see
    /// [`Backend::gradients_done`].
    pub only_updates: bool,
    /// Is called at most once, or twice where it cannot be recorded.
    pub work: UpdateWork<'a, B>,
}

type UpdateWork<'a, B> = &'a mut dyn FnMut(&B, &mut Arena<B>, &mut Arena<B>) -> Result<(), Error>;

impl<B: Backend> Graph<B> {
    /// [`Graph::start`] of a rank's last worker, whose gradients stay here, with `then` behind it: where the device replays its passes,
    /// both are one. The device must have a queue, and the batch samples. With `only_updates` the gradients are of no use afterwards.
    pub fn start_then(&mut self, batch: Batch<'_>, loss: Loss, then: FollowUp<'_, B>) -> Result<(), Error> {
        self.begin(&batch, Some(loss), true)?;
        let mut hasher = DefaultHasher::new();
        let wanted = if then.only_updates { PassGradients::ForUpdate } else { PassGradients::Sum };
        (self.digest(Kind::Gradients(wanted)), then.key).hash(&mut hasher);
        let FollowUp { work, .. } = then;
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

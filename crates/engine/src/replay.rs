//! The device's part of a pass as one piece of work, which a device with a queue replays.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use backend::{Backend, Buffer, Error};
use net::Shape;

use super::graph::Graph;

/// The purpose of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Scores alone.
    Scores,
    /// Scores and loss.
    Loss,
    /// Gradients.
    Gradients(Leaves),
}

/// The gradients that a training pass leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leaves {
    /// One worker's; others of this rank follow.
    Own,
    /// Those of all workers of this rank.
    Sum,
    /// The same, but only for the update that comes next, which finds them wherever the device has them.
    ForUpdate,
}

impl Leaves {
    /// Whether no worker of this rank follows.
    pub(super) fn last(self) -> bool {
        self != Leaves::Own
    }
}

impl Kind {
    /// For the log.
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
        let (backend, anew) = (Rc::clone(&self.backend), self.across.is_some() || self.watched());
        match backend.queue().filter(|_| !anew) {
            Some(queue) => queue.repeat(name, key, &mut || work(self)),
            None => work(self),
        }
    }

    /// The key of a pass: its kind, and the addresses of all memory that may differ between passes of the kind.
    pub(super) fn digest(&self, kind: Kind) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Shape { c, h, w } = self.input();
        (kind, self.current, [c, h, w], self.freeze.on).hash(&mut hasher);
        let arenas = [&self.weights, &self.grads].into_iter().chain(self.earlier.alive());
        arenas.flat_map(|arena| &arena.chunks).for_each(|chunk| chunk.place().hash(&mut hasher));
        hasher.finish()
    }
}

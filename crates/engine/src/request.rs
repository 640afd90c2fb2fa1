//! Describes what a pass computes: its batch, its loss and its gradients.

use backend::{DeviceMemory, Input};

#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub images: Input<'a>,
    /// Class of each image. Empty if only the scores are needed.
    pub labels: &'a [u32],
    /// Sample id of each image, for random draws.
    pub ids: &'a [u64],
    pub epoch: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Label smoothing: weight that is spread evenly over all classes.
    pub smoothing: f32,
    /// Factor on the gradient: 1 / (number of samples in this step, over all ranks).
    pub scale: f32,
}

/// Receives the number of a finished bucket and its gradients: the sum over this rank's workers, or one buffer per
/// worker in order (see [`Gather`](crate::Gather)).
pub type Ready<'a, B, E> = &'a mut dyn FnMut(usize, Vec<<B as DeviceMemory>::Buf>) -> Result<(), E>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Scores,
    Loss,
    Gradients(PassGradients),
}

/// The gradients that a training pass produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PassGradients {
    /// Gradients of a single worker. More workers of this rank follow.
    Own,
    /// The sum over all workers of this rank.
    Sum,
    /// The sum over all workers of this rank, but only for the update that follows. The device may store it in any form
    /// that its update can read.
    ForUpdate,
}

impl PassGradients {
    /// Returns true if this is the last worker of this rank.
    pub(super) fn last(self) -> bool {
        self != PassGradients::Own
    }
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Scores | Kind::Loss => "the scoring pass",
            Kind::Gradients(_) => "the training pass",
        }
    }
}

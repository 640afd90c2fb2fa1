//! The order of features after flattening. Keras stores channels last, so in Keras a flattened image has the order (H,
//! W, C). In trireme it has the order (C, H, W).

use super::list::Op;
use super::shape::Shape;
use super::spec::Reads;

/// The order of a tensor's elements in a program that stores channels last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureOrder {
    /// A vector with the same order as in trireme, or an image with the same pixels and channels.
    Same,
    /// The order of a flattened image with this shape.
    Flattened(Shape),
    /// Any other order. It cannot be described by the shape of an image.
    Mixed,
}

impl FeatureOrder {
    /// Returns the order after an operation. `inputs` are the orders of its inputs, and the first input has shape `x`.
    pub fn of(op: &Op, inputs: &[Self], x: Shape) -> Self {
        let alike = inputs.iter().all(|order| *order == inputs[0]);
        match op {
            // its weights are stored in the order of its inputs, so its outputs have the same order in both programs
            Op::Linear(_) => Self::Same,
            Op::Flatten(_) => inputs[0].flattened(x),
            Op::Multiply(_) if alike => inputs[0],
            op if op.reads() == Reads::Elements && alike => inputs[0],
            _ if inputs.iter().all(Self::is_same) => Self::Same,
            _ => Self::Mixed,
        }
    }

    /// Returns true if the elements have the same order as in trireme. This is always so for a flattened image with one
    /// channel.
    pub fn is_same(&self) -> bool {
        matches!(self, Self::Same | Self::Flattened(Shape { c: 1, .. }))
    }

    /// Returns the order of the features after flattening a tensor with this order and shape.
    pub fn flattened(self, x: Shape) -> Self {
        if self == Self::Same && x.plane() > 1 { Self::Flattened(x) } else { self }
    }
}

//! The order of features after flattening. Keras stores channels last: an image that is flattened there runs over (H, W, C), here over
//! (C, H, W).

use super::list::Op;
use super::shape::Shape;
use super::spec::Reads;

/// In which order a tensor's elements are where channels are last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureOrder {
    /// As here; an image is the same image.
    Same,
    /// That of an image of this shape, which was flattened.
    Flattened(Shape),
    /// Another one, which no order of one image tells.
    Mixed,
}

impl FeatureOrder {
    /// The order of an op's output; `inputs`: those of its inputs, `x`: the shape of the first.
    pub fn of(op: &Op, inputs: &[Self], x: Shape) -> Self {
        let alike = inputs.iter().all(|order| *order == inputs[0]);
        match op {
            // its weights have the order of its inputs
            Op::Linear(_) => Self::Same,
            Op::Flatten(_) => inputs[0].flattened(x),
            Op::Multiply(_) if alike => inputs[0],
            op if op.reads() == Reads::Elements && alike => inputs[0],
            _ if inputs.iter().all(Self::is_same) => Self::Same,
            _ => Self::Mixed,
        }
    }

    /// Whether elements are in the order that they have here; those of one channel are in any case.
    pub fn is_same(&self) -> bool {
        matches!(self, Self::Same | Self::Flattened(Shape { c: 1, .. }))
    }

    /// The order of the features of a tensor with this order and shape.
    pub fn flattened(self, x: Shape) -> Self {
        if self == Self::Same && x.plane() > 1 { Self::Flattened(x) } else { self }
    }
}

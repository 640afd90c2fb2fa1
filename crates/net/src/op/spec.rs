//! What every op declares, whatever device runs it.

use super::param::ParamSpec;
use super::shape::Shape;
use super::stored::Stored;

/// An op's attributes, without sizes of the input. Shapes are of one sample.
pub trait OpSpec {
    /// Lower-case name of the kind, as printed in tables.
    fn kind(&self) -> &'static str;

    /// How it reads its inputs.
    fn reads(&self) -> Reads;

    /// Number of inputs; none where it is any from one on.
    fn arity(&self) -> Option<usize> {
        Some(1)
    }

    /// Shape of the output for [`OpSpec::arity`] inputs; the error says what does not fit.
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Ok(x[0])
    }

    /// The parameters that it owns, in PyTorch's order.
    fn params(&self, _x: Shape) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Multiply-adds of one sample's forward pass; only convolutions and linear layers count, as is usual.
    fn macs(&self, _x: Shape) -> u64 {
        0
    }

    /// Whether the output is the input's memory under another shape: such an op is not run.
    fn renames(&self) -> bool {
        false
    }

    /// For an op with a running mean and variance of each channel: the weight of the new statistics in the running ones.
    fn statistics_momentum(&self) -> Option<f32> {
        None
    }

    /// Starts the op so that the residual branch that it ends is zero; nothing for an op that ends none.
    fn start_branch_at_zero(&mut self) {}

    /// How files store its tensors; none without tensors.
    fn stored() -> Option<&'static Stored>
    where
        Self: Sized,
    {
        None
    }
}

/// How an op reads its inputs: decides which memory orders it can take, and what a flattened image means to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Channel by channel: a flattened image is not one.
    Channels,
    /// Element by element: with one input, the output's elements are in the input's order.
    Elements,
    /// All elements as features, (C, H, W) if they were an image.
    Features,
}

//! The loss: what is asked of it, its sums over a batch, its scale where numbers are short.

/// What the loss asks for.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// Class of each row.
    pub labels: &'a [u32],
    /// Weight spread evenly over all classes.
    pub smoothing: f32,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
}

/// Sums over the rows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSums {
    /// Sum of the losses.
    pub loss: f64,
    /// Rows whose class has the highest score.
    pub top1: u64,
    /// Rows whose class is among the five highest scores.
    pub top5: u64,
    /// Rows.
    pub count: u64,
}

/// The factor of the losses of a device whose activations are of a type with a short range, and how it came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossScale {
    /// The factor.
    pub scale: f32,
    /// Good steps since it last grew.
    pub good: u32,
    /// Steps in a row, up to the last one, that were left out because a gradient was Inf or NaN.
    pub bad: u32,
    /// Steps that were left out in all.
    pub lost: u32,
}

impl LossScale {
    /// Below this, halving the scale has not helped: the values themselves are not finite.
    pub const LEAST: f32 = 1.0 / 1024.0;
}

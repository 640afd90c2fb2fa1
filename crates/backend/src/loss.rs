//! The loss: its arguments, and its sums over a batch.

/// Arguments of the softmax cross-entropy.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// Class of each row.
    pub labels: &'a [u32],
    /// Weight spread evenly over all classes.
    pub smoothing: f32,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
    /// Another factor of the gradient, where several losses are added up.
    pub weight: f32,
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

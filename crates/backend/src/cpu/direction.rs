//! The three passes of a layer with weights.

/// Which of the three passes a primitive computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    BackwardData,
    /// dw, db from x and dy.
    BackwardWeights,
}

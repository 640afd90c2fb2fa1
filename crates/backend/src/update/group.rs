//! What an update is given: parameter groups, and the rule with its numbers for the step.

use std::ops::Range;

use super::catalogue::Rule;

/// Consecutive elements of a chunk with the same weight decay and learning rate.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    /// First element and one past the last.
    pub range: Range<usize>,
    /// Coefficient of the weight decay.
    pub weight_decay: f32,
    /// Which of the step's [`rates`](super::rates) multiplies the learning rate.
    pub rate: usize,
}

/// One optimizer step. In the formulas of the rules g is the gradient after clipping by norm, plus `weight_decay` times the
/// parameter w; lr includes the group's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// How slots and parameters move.
    pub rule: Rule,
    /// Learning rate of this step.
    pub lr: f64,
}

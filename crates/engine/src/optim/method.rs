//! The trait that every optimizer implements, the description of its slots, and the error for invalid settings.

use backend::Rule;

/// A tensor that an optimizer keeps for each parameter, such as a momentum buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotSpec {
    /// PyTorch's name for the tensor. Checkpoints use the same name.
    pub name: &'static str,
    /// Value before the first step.
    pub start: f32,
}

impl SlotSpec {
    pub const fn zero(name: &'static str) -> Self {
        Self { name, start: 0.0 }
    }
}

/// An optimizer with its settings.
pub trait Method {
    /// Returns the slots in the order that the [`Rule`] expects.
    fn slots(&self) -> Vec<SlotSpec>;

    /// Returns the update rule with its coefficients for optimizer step `step`, counted from 1. `momentum` replaces the
    /// momentum (or decay of the mean gradient) of the settings. An optimizer without momentum ignores it.
    fn rule(&self, step: u64, momentum: Option<f64>) -> Rule;

    /// Checks combinations of settings. The schema has already checked each single setting.
    fn check(&self) -> Result<(), OptimizerError> {
        Ok(())
    }

    /// Returns true if the learning rate of a parameter with this name, shape and weight decay may be scaled by a trust
    /// ratio.
    fn adapts(&self, _parameter: &str, _shape: &[usize], _weight_decay: f64) -> bool {
        true
    }

    /// Returns true if weight decay applies to a parameter of this shape when the recipe has no `no_decay`.
    fn decays(&self, _shape: &[usize]) -> bool {
        true
    }
}

/// An invalid `[optimizer]` section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("optimizer.{key}: {why}")]
pub struct OptimizerError {
    pub key: &'static str,
    /// The expected and the found value, and a remedy.
    pub why: String,
}

//! The trait that every optimizer implements, the values that it keeps for each parameter, and the error for its settings.

use backend::Rule;

/// A value that an optimizer keeps for each parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotSpec {
    /// PyTorch's name, which checkpoints use.
    pub name: &'static str,
    /// Value before the first step.
    pub start: f32,
}

impl SlotSpec {
    /// A slot that starts at 0.
    pub const fn zero(name: &'static str) -> Self {
        Self { name, start: 0.0 }
    }
}

/// An optimizer with its settings.
pub trait Method {
    /// Its slots, in the order of its [`Rule`].
    fn slots(&self) -> Vec<SlotSpec>;

    /// Its numbers for optimizer step `step`, counted from 1.
    fn rule(&self, step: u64) -> Rule;

    /// The same with another momentum, or decay of the mean gradient; none for an optimizer without either.
    fn rule_with_momentum(&self, _step: u64, _momentum: f64) -> Option<Rule> {
        None
    }

    /// Refuses combinations of settings; the schema has checked each setting by itself.
    fn check(&self) -> Result<(), OptimizerError> {
        Ok(())
    }

    /// Whether the parameter of this name, shape and weight decay may have a learning rate of its own.
    fn adapts(&self, _parameter: &str, _shape: &[usize], _weight_decay: f64) -> bool {
        true
    }

    /// Whether weight decay applies to a parameter of this shape where `no_decay` is absent.
    fn decays(&self, _shape: &[usize]) -> bool {
        true
    }
}

/// An `[optimizer]` section that cannot be used: the key at fault, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("optimizer.{key}: {why}")]
pub struct OptimizerError {
    /// Key inside `[optimizer]`.
    pub key: &'static str,
    /// Expected, got, what to try.
    pub why: String,
}

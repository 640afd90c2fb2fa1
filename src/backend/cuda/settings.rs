//! What a recipe settles for a card.

use std::fmt;

/// Type of activations, their gradients and the copies of weights that matrix products take. Parameters, their gradients,
/// statistics and losses are f32 or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits everywhere.
    #[default]
    F32,
    /// 8 bits of exponent, 8 of mantissa.
    Bf16,
    /// 5 bits of exponent, 11 of mantissa; losses are scaled so that small gradients survive.
    F16,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        })
    }
}

/// How a card computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Type of activations.
    pub precision: Precision,
    /// Whether products of f32 may round their factors to 11 bits of mantissa.
    pub allow_tf32: bool,
    /// Only algorithms that give the same bits again, chosen without a clock.
    pub deterministic: bool,
    /// Bytes of work space that one operation may take.
    pub workspace: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { precision: Precision::F32, allow_tf32: false, deterministic: false, workspace: 512 << 20 }
    }
}

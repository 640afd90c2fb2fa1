//! What a recipe settles for a card.

pub use crate::backend::precision::Precision;

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

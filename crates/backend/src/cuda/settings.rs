//! How a GPU computes: the precision and limits with which it was opened.

use crate::Precision;

impl Precision {
    /// Bytes of an activation.
    pub(super) fn bytes(self) -> usize {
        if self == Precision::F32 { 4 } else { 2 }
    }
}

/// How a GPU computes.
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

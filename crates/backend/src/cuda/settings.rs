//! The settings with which a GPU was opened: precision and limits.

use crate::Precision;

impl Precision {
    /// Returns the bytes of an activation.
    pub(super) fn bytes(self) -> usize {
        if self == Precision::F32 { 4 } else { 2 }
    }
}

/// Precision and limits with which a GPU was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub precision: Precision,
    /// True if f32 products may use TF32, which rounds the factors to 11 significant bits.
    pub allow_tf32: bool,
    /// True if only reproducible algorithms may be used, chosen without timing.
    pub deterministic: bool,
    /// Maximum bytes of workspace per operation.
    pub workspace: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { precision: Precision::F32, allow_tf32: false, deterministic: false, workspace: 512 << 20 }
    }
}

//! The settings with which a GPU was opened, and the limit for workspace.

use crate::Precision;

/// Maximum bytes of workspace per operation.
pub(super) const WORKSPACE: usize = 512 << 20;

impl Precision {
    /// Returns the bytes of an activation.
    pub(super) fn bytes(self) -> usize {
        if self == Precision::F32 { 4 } else { 2 }
    }
}

/// Precision of a GPU and the kinds of algorithms that it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub precision: Precision,
    /// True if f32 products may use TF32, which rounds the factors to 11 significant bits.
    pub allow_tf32: bool,
    /// True if only reproducible algorithms may be used, chosen without timing.
    pub deterministic: bool,
}

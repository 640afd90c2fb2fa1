//! Dropout: attributes.

use super::spec::{OpSpec, Reads};

/// Inverted dropout. The value is the probability of zero. The identity in evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dropout(pub f32);

impl OpSpec for Dropout {
    fn kind(&self) -> &'static str {
        "dropout"
    }

    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

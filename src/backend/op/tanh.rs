//! Hyperbolic tangent.

use super::spec::{OpSpec, Reads};

/// tanh(x).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tanh;

impl OpSpec for Tanh {
    fn kind(&self) -> &'static str {
        "tanh"
    }

    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

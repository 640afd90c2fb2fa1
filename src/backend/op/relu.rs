//! ReLU.

use super::spec::{OpSpec, Reads};

/// max(x, 0); NaN stays NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Relu;

impl OpSpec for Relu {
    fn kind(&self) -> &'static str {
        "relu"
    }

    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

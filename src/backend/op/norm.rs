//! Batch normalisation: attributes and parameters.

use super::{Init, ParamSpec, Shape};

/// y = gamma (x - mean) / sqrt(var + eps) + beta, then + residual, then ReLU, in one pass (Ioffe and Szegedy 2015).
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Added to the variance.
    pub eps: f32,
    /// Weight of the new statistics in the running ones (PyTorch's meaning).
    pub momentum: f32,
    /// A second input is added before the ReLU.
    pub residual: bool,
    /// max(., 0) at the end.
    pub relu: bool,
    /// Start of gamma.
    pub gamma: f32,
}

impl Norm {
    /// PyTorch's defaults: eps 1e-5, momentum 0.1, gamma 1, beta 0.
    pub fn new() -> Self {
        Self { eps: 1e-5, momentum: 0.1, residual: false, relu: false, gamma: 1.0 }
    }

    /// ReLU in the same pass.
    pub fn relu(mut self) -> Self {
        self.relu = true;
        self
    }

    /// Adds the second input.
    pub fn residual(mut self) -> Self {
        self.residual = true;
        self
    }

    pub(super) fn params(&self, x: Shape) -> Vec<ParamSpec> {
        vec![
            ParamSpec::new("weight", vec![x.c], Init::Constant(self.gamma)),
            ParamSpec::new("bias", vec![x.c], Init::Constant(0.0)),
        ]
    }
}

impl Default for Norm {
    fn default() -> Self {
        Self::new()
    }
}

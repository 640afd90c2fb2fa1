//! Layer normalisation over the channels of each position.

use super::shape::Shape;
use super::spec::{KerasOrder, OpSpec, ParamSpec, StoredTensor};
use super::toml_keys::{Keys, OpFormat};

/// y = weight (x - mean) / sqrt(var + eps) + bias. For each sample and position, mean and variance are taken over the
/// channels (Ba et al. 2016, arXiv 1607.06450, over channels as in ConvNeXt, Liu et al. 2022, arXiv 2201.03545).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance before the root.
    pub eps: f32,
}

impl LayerNorm {
    /// Creates the operation with ConvNeXt's eps, 1e-6.
    pub fn new() -> Self {
        Self { eps: 1e-6 }
    }
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self::new()
    }
}

impl OpSpec for LayerNorm {
    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        ParamSpec::scale_and_shift(x.c)
    }
}

impl OpFormat for LayerNorm {
    const WORDS: &'static [&'static str] = &["layer_norm"];
    const TENSORS: &'static [StoredTensor] = &[
        StoredTensor::parameter("weight", "gamma", KerasOrder::Vector),
        StoredTensor::parameter("bias", "beta", KerasOrder::Vector),
    ];

    fn plain(_: &str) -> Self {
        Self::new()
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { eps } = self;
        keys.positive("eps", eps);
    }
}

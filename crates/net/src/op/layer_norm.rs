//! Layer normalisation over the channels of each position.

use super::shape::Shape;
use super::spec::ParamSpec;
use super::spec::{KerasOrder, Stored, StoredTensor};
use super::spec::{OpSpec, Reads};
use super::toml_keys::{Keys, TomlOp};

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

const STORED: Stored = Stored {
    kind: "layer_norm",
    tensors: &[
        StoredTensor::parameter("weight", "gamma", KerasOrder::Vector),
        StoredTensor::parameter("bias", "beta", KerasOrder::Vector),
    ],
};

impl OpSpec for LayerNorm {
    fn kind(&self) -> &'static str {
        "layer_norm"
    }

    fn reads(&self) -> Reads {
        Reads::Channels
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        ParamSpec::scale_and_shift(x.c)
    }

    fn stored() -> Option<&'static Stored> {
        Some(&STORED)
    }
}

impl TomlOp for LayerNorm {
    const WORDS: &'static [&'static str] = &["layer_norm"];

    fn plain(_: &str) -> Self {
        Self::new()
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { eps } = self;
        keys.positive("eps", eps);
    }
}

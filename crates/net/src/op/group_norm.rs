//! Normalisation over channel groups of each sample.

use base::text::plural;

use super::shape::Shape;
use super::spec::{KerasOrder, OpSpec, ParamSpec, StoredTensor};
use super::toml_keys::{Keys, OpFormat};

/// y = weight (x - mean) / sqrt(var + eps) + bias. For each sample, mean and variance are taken over all positions of a
/// group of adjacent channels (Wu and He 2018, arXiv 1803.08494).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Number of groups, which have equal sizes.
    pub groups: usize,
    /// Added to the variance before the root.
    pub eps: f32,
}

impl GroupNorm {
    /// Creates the operation with PyTorch's eps, 1e-5.
    pub fn new(groups: usize) -> Self {
        Self { groups, eps: 1e-5 }
    }
}

impl OpSpec for GroupNorm {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        if self.groups == 0 || !x[0].c.is_multiple_of(self.groups) {
            return Err(format!(
                "{} cannot be divided into {}",
                plural(x[0].c, "channel"),
                plural(self.groups, "group")
            ));
        }
        Ok(x[0])
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        ParamSpec::scale_and_shift(x.c)
    }
}

impl OpFormat for GroupNorm {
    const WORDS: &'static [&'static str] = &["group_norm"];
    const TENSORS: &'static [StoredTensor] = &[
        StoredTensor::parameter("weight", "gamma", KerasOrder::Vector),
        StoredTensor::parameter("bias", "beta", KerasOrder::Vector),
    ];
    const CURE: &'static str = "groups must divide the input channels";

    fn plain(_: &str) -> Self {
        Self::new(0)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { groups, eps } = self;
        keys.needed("groups", groups);
        keys.positive("eps", eps);
    }
}

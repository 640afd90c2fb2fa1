//! A learned factor per channel.

use super::shape::Shape;
use super::spec::{Init, KerasOrder, OpSpec, ParamSpec, StoredTensor};
use super::toml_keys::{Keys, OpFormat};

/// y = layer_scale x, where `layer_scale` has a factor per channel. The value in this struct is the initial factor
/// (Touvron et al. 2021, arXiv 2103.17239, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerScale(pub f32);

impl OpSpec for LayerScale {
    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        vec![ParamSpec::new("layer_scale", vec![x.c], Init::Constant(self.0))]
    }
}

impl OpFormat for LayerScale {
    const WORDS: &'static [&'static str] = &["layer_scale"];
    const TENSORS: &'static [StoredTensor] = &[StoredTensor::parameter("layer_scale", "gamma", KerasOrder::Vector)];

    fn plain(_: &str) -> Self {
        Self(1.0)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.needed("start", &mut self.0);
    }
}

//! A learned factor per channel.

use super::shape::Shape;
use super::spec::{Init, ParamSpec};
use super::spec::{KerasOrder, Stored, StoredTensor};
use super::spec::{OpSpec, Reads};
use super::toml_keys::{Keys, TomlOp};

/// y = layer_scale x, where `layer_scale` has a factor per channel. The value in this struct is the initial factor
/// (Touvron et al. 2021, arXiv 2103.17239, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerScale(pub f32);

const STORED: Stored =
    Stored { kind: "layer_scale", tensors: &[StoredTensor::parameter("layer_scale", "gamma", KerasOrder::Vector)] };

impl OpSpec for LayerScale {
    fn kind(&self) -> &'static str {
        "layer_scale"
    }

    fn reads(&self) -> Reads {
        Reads::Channels
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        vec![ParamSpec::new("layer_scale", vec![x.c], Init::Constant(self.0))]
    }

    fn stored() -> Option<&'static Stored> {
        Some(&STORED)
    }
}

impl TomlOp for LayerScale {
    const WORDS: &'static [&'static str] = &["layer_scale"];

    fn plain(_: &str) -> Self {
        Self(1.0)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.needed("start", &mut self.0);
    }
}

//! A learned vector for each position.

use super::shape::Shape;
use super::spec::{Init, ParamSpec};
use super::spec::{KerasOrder, Stored, StoredTensor};
use super::spec::{OpSpec, Reads};
use super::toml_keys::TomlOp;

/// Adds a learned vector to each position in a sequence or image (Dosovitskiy et al. 2021, arXiv 2010.11929, eq. 1).
/// The initial vectors are normally distributed with standard deviation 0.02, as in torchvision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionEmbedding;

const STORED: Stored = Stored {
    kind: "position_embedding",
    tensors: &[StoredTensor::parameter("pos_embedding", "embeddings", KerasOrder::Rows)],
};

impl OpSpec for PositionEmbedding {
    fn kind(&self) -> &'static str {
        "position_embedding"
    }

    fn reads(&self) -> Reads {
        Reads::Channels
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        vec![ParamSpec::new("pos_embedding", vec![x.plane(), x.c], Init::Normal(0.02))]
    }

    fn stored() -> Option<&'static Stored> {
        Some(&STORED)
    }
}

impl TomlOp for PositionEmbedding {
    const WORDS: &'static [&'static str] = &["position_embedding"];

    fn plain(_: &str) -> Self {
        Self
    }
}

//! A learned vector for each position.

use super::shape::Shape;
use super::spec::{Init, KerasOrder, OpSpec, ParamSpec, StoredTensor};
use super::toml_keys::{Keys, OpFormat};

/// Adds a learned vector to each position in a sequence or image (Dosovitskiy et al. 2021, arXiv 2010.11929, eq. 1).
/// The initial vectors are normally distributed with standard deviation 0.02, as in torchvision, or have the sines and
/// cosines of row and column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositionEmbedding {
    /// True for [`Init::SinCos`]. The number of channels must then be a multiple of 4.
    pub sincos: bool,
}

impl OpSpec for PositionEmbedding {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        match self.sincos && !x[0].c.is_multiple_of(4) {
            true => Err(format!("sincos = true needs a multiple of 4 channels; its input has {}", x[0].c)),
            false => Ok(x[0]),
        }
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let init = if self.sincos { Init::SinCos(x.w) } else { Init::Normal(0.02) };
        vec![ParamSpec::new("pos_embedding", vec![x.plane(), x.c], init)]
    }
}

impl OpFormat for PositionEmbedding {
    const WORDS: &'static [&'static str] = &["position_embedding"];
    const TENSORS: &'static [StoredTensor] =
        &[StoredTensor::parameter("pos_embedding", "embeddings", KerasOrder::Rows)];

    fn plain(_: &str) -> Self {
        Self::default()
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.key("sincos", &mut self.sincos);
    }
}

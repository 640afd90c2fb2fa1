//! A learned token before a sequence.

use super::shape::Shape;
use super::spec::{Init, KerasOrder, OpSpec, ParamSpec, StoredTensor};
use super::toml_keys::OpFormat;

/// Turns an image into a sequence and puts a learned class token before it (Dosovitskiy et al. 2021, arXiv 2010.11929,
/// eq. 1). Each position becomes a token, in row-major order. A sequence with T tokens and C features is stored as an
/// image with C channels, a single row and T columns. The class token starts at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassToken;

impl OpSpec for ClassToken {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Ok(Shape::image(x[0].c, 1, x[0].plane() + 1))
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        vec![ParamSpec::new("class_token", vec![x.c], Init::Constant(0.0))]
    }
}

impl OpFormat for ClassToken {
    const WORDS: &'static [&'static str] = &["class_token"];
    const TENSORS: &'static [StoredTensor] =
        &[StoredTensor::parameter("class_token", "class_token", KerasOrder::Vector)];

    fn plain(_: &str) -> Self {
        Self
    }
}

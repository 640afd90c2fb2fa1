//! A learned token before a sequence.

use super::shape::Shape;
use super::spec::{Init, ParamSpec};
use super::spec::{KerasOrder, Stored, StoredTensor};
use super::spec::{OpSpec, Reads};
use super::toml_keys::TomlOp;

/// Turns an image into a sequence and puts a learned class token before it (Dosovitskiy et al. 2021, arXiv 2010.11929,
/// eq. 1). Each position becomes a token, in row-major order. A sequence with T tokens and C features is stored as an
/// image with C channels, a single row and T columns. The class token starts at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassToken;

const STORED: Stored = Stored {
    kind: "class_token",
    tensors: &[StoredTensor::parameter("class_token", "class_token", KerasOrder::Vector)],
};

impl OpSpec for ClassToken {
    fn kind(&self) -> &'static str {
        "class_token"
    }

    fn reads(&self) -> Reads {
        Reads::Channels
    }

    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Ok(Shape::image(x[0].c, 1, x[0].plane() + 1))
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        vec![ParamSpec::new("class_token", vec![x.c], Init::Constant(0.0))]
    }

    fn stored() -> Option<&'static Stored> {
        Some(&STORED)
    }
}

impl TomlOp for ClassToken {
    const WORDS: &'static [&'static str] = &["class_token"];

    fn plain(_: &str) -> Self {
        Self
    }
}

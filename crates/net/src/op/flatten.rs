//! Flattens an image to a vector.

use super::shape::Shape;
use super::spec::{OpSpec, Reads};
use super::toml_keys::OpFormat;

/// (N, C, H, W) to (N, C*H*W). No computation: the next layer reads the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flatten;

impl OpSpec for Flatten {
    fn reads(&self) -> Reads {
        Reads::Elements
    }

    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Ok(Shape::vector(x[0].elems()))
    }

    fn renames(&self) -> bool {
        true
    }
}

impl OpFormat for Flatten {
    const WORDS: &'static [&'static str] = &["flatten"];

    fn plain(_: &str) -> Self {
        Self
    }
}

//! Sum of two tensors with the same shape.

use super::shape::Shape;
use super::spec::{OpSpec, Reads};
use super::toml_keys::{JOIN_CURE, OpFormat};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Add;

impl OpSpec for Add {
    fn reads(&self) -> Reads {
        Reads::Elements
    }

    fn arity(&self) -> Option<usize> {
        Some(2)
    }

    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Shape::alike(x)
    }
}

impl OpFormat for Add {
    const WORDS: &'static [&'static str] = &["add"];
    const CURE: &'static str = JOIN_CURE;

    fn plain(_: &str) -> Self {
        Self
    }
}

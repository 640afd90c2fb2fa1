//! Sum of two tensors with the same shape.

use super::shape::Shape;
use super::spec::{OpSpec, Reads};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Add;

impl OpSpec for Add {
    fn kind(&self) -> &'static str {
        "add"
    }

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

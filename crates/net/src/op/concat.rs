//! Concatenation along the channels.

use super::shape::Shape;
use super::spec::OpSpec;
use super::toml_keys::{JOIN_CURE, OpFormat};

/// Concatenates the channels of all inputs, in order. There may be any number of inputs, which must have the same
/// height and width.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Concat;

impl OpSpec for Concat {
    fn arity(&self) -> Option<usize> {
        None
    }

    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        match x.iter().find(|other| (other.h, other.w) != (x[0].h, x[0].w)) {
            Some(other) => Err(format!("its inputs must have the same height and width, got {} and {other}", x[0])),
            None => Ok(Shape { c: x.iter().map(|x| x.c).sum(), ..x[0] }),
        }
    }
}

impl OpFormat for Concat {
    const WORDS: &'static [&'static str] = &["concat"];
    const CURE: &'static str = JOIN_CURE;

    fn plain(_: &str) -> Self {
        Self
    }
}

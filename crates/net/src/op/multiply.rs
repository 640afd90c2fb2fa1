//! Product with one factor per sample and channel.

use super::shape::Shape;
use super::spec::OpSpec;
use super::toml_keys::OpFormat;

/// x (C, H, W) times s (C, 1, 1): the second input weights the channels of the first (squeeze and excitation, Hu et al.
/// 2018, arXiv 1709.01507).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Multiply;

impl OpSpec for Multiply {
    fn arity(&self) -> Option<usize> {
        Some(2)
    }

    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        if x[1] != Shape::vector(x[0].c) {
            return Err(format!("its second input must have one value for each of {} channels, got {}", x[0].c, x[1]));
        }
        Ok(x[0])
    }
}

impl OpFormat for Multiply {
    const WORDS: &'static [&'static str] = &["multiply"];
    const CURE: &'static str = "write inputs = [\"image\", \"factors\"]; the second input needs one value per channel, such as the output \
                                of an avgpool without window";

    fn plain(_: &str) -> Self {
        Self
    }
}

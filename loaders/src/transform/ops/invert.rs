//! `invert(p)`: 255 less each value, with probability p, 1/2 if it is left out (torchvision's `RandomInvert`).

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::only_probability;
use crate::transform::bytes;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct Invert {
    probability: f64,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Built {
    Ok(Box::new(Invert { probability: only_probability(arguments, 0.5)? }))
}

impl Transform for Invert {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::invert(image.byte_image());
        }
    }
}

impl fmt::Display for Invert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invert({})", self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn as_often_as_requested() {
        let spec = ImageSpec::new(1, 2, 1);
        assert_eq!(run(build, "invert(1)", spec, &[0, 200], 3), [255.0, 55.0]);
        assert_eq!(run(build, "invert(0)", spec, &[0, 200], 3), [0.0, 200.0]);
        let inverted = (0..1000).filter(|id| run(build, "invert(0.2)", spec, &[0, 200], *id)[0] > 0.0).count();
        // 200 +- 13
        assert!((150..250).contains(&inverted), "{inverted}");
    }
}

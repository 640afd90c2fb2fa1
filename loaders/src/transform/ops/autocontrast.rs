//! `autocontrast(p)`: with probability p, 1/2 if it is left out, each channel is stretched to 0 to 255 (torchvision's
//! `RandomAutocontrast`). A channel of one value stays.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, only_probability};
use crate::transform::bytes;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct AutoContrast {
    probability: f64,
}

pub(super) fn build(arguments: &[f64], context: Context<'_>) -> Built {
    grey_or_rgb(context.input)?;
    Ok(Box::new(AutoContrast { probability: only_probability(arguments, 0.5)? }))
}

impl Transform for AutoContrast {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::autocontrast(image.byte_image());
        }
    }
}

impl fmt::Display for AutoContrast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autocontrast({})", self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn each_channel_is_stretched() {
        let spec = ImageSpec::new(1, 3, 3);
        let bytes = [50, 7, 0, 100, 7, 255, 150, 7, 9];
        let out = run(build, "autocontrast(1)", spec, &bytes, 0);
        // in f32, 100 / (100 * (1 / 255)) is just below 255, as in torchvision
        assert_eq!(out, [0.0, 127.0, 254.0, 7.0, 7.0, 7.0, 0.0, 255.0, 9.0]);
    }
}

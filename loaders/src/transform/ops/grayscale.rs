//! `grayscale(p)`: all channels become the grey of the colour, with probability p, always if it is left out (torchvision's
//! `Grayscale(3)` and `RandomGrayscale`). The number of channels stays.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, only_probability};
use crate::transform::bytes;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct Grayscale {
    probability: f64,
}

pub(super) fn build(arguments: &[f64], context: Context<'_>) -> Built {
    grey_or_rgb(context.input)?;
    Ok(Box::new(Grayscale { probability: only_probability(arguments, 1.0)? }))
}

impl Transform for Grayscale {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::grayscale(image.byte_image());
        }
    }
}

impl fmt::Display for Grayscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grayscale({})", self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn channels_become_equal() {
        let out = run(build, "grayscale", ImageSpec::new(1, 2, 3), &[255, 0, 0, 0, 255, 100], 0);
        // 0.2989 * 255 = 76.2; 0.587 * 255 + 0.114 * 100 = 161.1
        assert_eq!(out, [76.0, 161.0, 76.0, 161.0, 76.0, 161.0]);
        assert_eq!(run(build, "grayscale", ImageSpec::new(1, 2, 1), &[9, 8], 0), [9.0, 8.0]);
    }
}

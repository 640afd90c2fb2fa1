//! `sharpness(factor, p)`: blends with the image smoothed by (1 1 1; 1 5 1; 1 1 1) / 13, with probability p, 1/2 if it is left out
//! (torchvision's `RandomAdjustSharpness`). A factor of 0 smooths, 1 changes nothing, 2 sharpens.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, only_probability};
use crate::transform::bytes;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct Sharpness {
    factor: f64,
    probability: f64,
}

pub(super) fn build(arguments: &[f64], context: Context<'_>) -> Built {
    let [factor, ref rest @ ..] = *arguments else {
        return Err("expected 1 or 2 arguments, got 0".into());
    };
    if factor < 0.0 {
        return Err(format!("expected a factor of at least 0, got {factor}"));
    }
    grey_or_rgb(context.input)?;
    Ok(Box::new(Sharpness { factor, probability: only_probability(rest, 0.5)? }))
}

impl Transform for Sharpness {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::sharpness(image.byte_image(), self.factor);
        }
    }
}

impl fmt::Display for Sharpness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sharpness({}, {})", self.factor, self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn a_dot_is_spread_or_lifted_and_the_border_stays() {
        let spec = ImageSpec::new(3, 3, 1);
        let dot = [10, 10, 10, 10, 140, 10, 10, 10, 10];
        // (8 * 10 + 5 * 140) / 13 = 60
        let with = |factor: &str, middle: f32| {
            let out = run(build, &format!("sharpness({factor}, 1)"), spec, &dot, 0);
            assert_eq!(out[4], middle, "{factor}");
            assert!(out.iter().enumerate().all(|(i, value)| i == 4 || *value == 10.0));
        };
        with("0", 60.0);
        with("1", 140.0);
        with("2", 220.0);
        with("3", 255.0);
    }
}

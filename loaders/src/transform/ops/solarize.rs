//! `solarize(threshold, p)`: inverts the values from a threshold of 0 to 255 on, with probability p, 1/2 if it is left out
//! (torchvision's `RandomSolarize`).

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::only_probability;
use crate::transform::bytes;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct Solarize {
    threshold: f64,
    probability: f64,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Built {
    let [threshold, ref rest @ ..] = *arguments else {
        return Err("expected 1 or 2 arguments, got 0".into());
    };
    if !(0.0..=255.0).contains(&threshold) {
        return Err(format!("expected a threshold from 0 to 255, got {threshold}"));
    }
    Ok(Box::new(Solarize { threshold, probability: only_probability(rest, 0.5)? }))
}

impl Transform for Solarize {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::solarize(image.byte_image(), self.threshold as f32);
        }
    }
}

impl fmt::Display for Solarize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "solarize({}, {})", self.threshold, self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn values_from_the_threshold_on_are_inverted() {
        let spec = ImageSpec::new(1, 4, 1);
        assert_eq!(run(build, "solarize(128, 1)", spec, &[0, 127, 128, 255], 0), [0.0, 127.0, 127.0, 0.0]);
        assert_eq!(run(build, "solarize(127.5, 1)", spec, &[0, 127, 128, 255], 0), [0.0, 127.0, 127.0, 0.0]);
        assert_eq!(run(build, "solarize(0, 1)", spec, &[0, 127, 128, 255], 0), [255.0, 128.0, 127.0, 0.0]);
    }
}

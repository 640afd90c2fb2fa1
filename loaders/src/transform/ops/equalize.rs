//! `equalize(p)`: with probability p, 1/2 if it is left out, the histogram of each channel is equalised, by PIL's rule (torchvision's
//! `RandomEqualize`).

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, only_probability};
use crate::transform::bytes;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct Equalize {
    probability: f64,
}

pub(super) fn build(arguments: &[f64], context: Context<'_>) -> Built {
    grey_or_rgb(context.input)?;
    Ok(Box::new(Equalize { probability: only_probability(arguments, 0.5)? }))
}

impl Transform for Equalize {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::equalize(image.byte_image());
        }
    }
}

impl fmt::Display for Equalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "equalize({})", self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn all_levels_become_equally_frequent() {
        // 16 levels, 64 times each, spread over all
        let spec = ImageSpec::new(32, 32, 1);
        let bytes: Vec<u8> = (0..1024u32).map(|i| 100 + (i % 16) as u8).collect();
        let out = run(build, "equalize(1)", spec, &bytes, 0);
        // (1024 - 64) / 255 = 3 pixels a step
        for (value, byte) in out.iter().zip(&bytes) {
            let below = 64 * (u32::from(*byte) - 100);
            assert_eq!(*value, ((below + 1) / 3).min(255) as f32);
        }
        // fewer than 255 pixels below the largest value: as it was
        assert_eq!(run(build, "equalize(1)", ImageSpec::new(1, 3, 1), &[5, 6, 7], 0), [5.0, 6.0, 7.0]);
    }
}

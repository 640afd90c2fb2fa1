//! `posterize(bits, p)`: keeps the highest bits of each value, with probability p, 1/2 if it is left out (torchvision's
//! `RandomPosterize`).

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{only_probability, whole};
use crate::transform::bytes;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct Posterize {
    bits: u32,
    probability: f64,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Built {
    let [bits, ref rest @ ..] = *arguments else {
        return Err("expected 1 or 2 arguments, got 0".into());
    };
    let bits = whole(bits, 0, 8).map_err(|problem| format!("{problem} bits"))?;
    Ok(Box::new(Posterize { bits, probability: only_probability(rest, 0.5)? }))
}

impl Transform for Posterize {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::posterize(image.byte_image(), self.bits);
        }
    }
}

impl fmt::Display for Posterize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "posterize({}, {})", self.bits, self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn the_highest_bits_stay() {
        let spec = ImageSpec::new(1, 3, 1);
        for bits in 0..=8 {
            let out = run(build, &format!("posterize({bits}, 1)"), spec, &[0, 0b1011_0111, 255], 0);
            let kept = |byte: u32| (byte >> (8 - bits) << (8 - bits)) as f32;
            assert_eq!(out, [0.0, kept(0b1011_0111), kept(255)]);
        }
    }
}

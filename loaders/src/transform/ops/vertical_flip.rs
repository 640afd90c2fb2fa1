//! `vertical_flip(p)`: mirrors top and bottom with probability p, 1/2 if it is left out.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::only_probability;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct VerticalFlip {
    probability: f64,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Built {
    Ok(Box::new(VerticalFlip { probability: only_probability(arguments, 0.5)? }))
}

impl Transform for VerticalFlip {
    fn is_geometric(&self) -> bool {
        true
    }

    fn upends(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            image.upend();
        }
    }
}

impl fmt::Display for VerticalFlip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vertical_flip({})", self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn half_of_the_images_are_mirrored() {
        let spec = ImageSpec::new(3, 1, 1);
        let mut flipped = 0;
        for id in 0..1000 {
            let out = run(build, "vertical_flip", spec, &[1, 2, 3], id);
            if draws(id).unit() < 0.5 {
                assert_eq!(out, [3.0, 2.0, 1.0]);
                flipped += 1;
            } else {
                assert_eq!(out, [1.0, 2.0, 3.0]);
            }
        }
        // 500 +- 16.
        assert!((430..570).contains(&flipped), "{flipped}");
    }

    #[test]
    fn by_a_probability_of_ones_own() {
        let spec = ImageSpec::new(2, 1, 1);
        let flipped = (0..1000).filter(|id| run(build, "vertical_flip(0.1)", spec, &[1, 2], *id)[0] == 2.0).count();
        // 100 +- 9.5
        assert!((60..140).contains(&flipped), "{flipped}");
    }
}

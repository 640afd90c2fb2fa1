//! `flip`: mirrors left and right with probability 1/2.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::no_arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Transform};

#[derive(Debug)]
struct Flip;

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    no_arguments(arguments)?;
    Ok(Box::new(Flip))
}

impl Transform for Flip {
    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.unit() < 0.5 {
            image.flip();
        }
    }
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flip")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn half_of_the_images_are_mirrored() {
        let spec = ImageSpec::new(1, 3, 1);
        let mut flipped = 0;
        for id in 0..1000 {
            let out = run(build, "flip", spec, &[1, 2, 3], id);
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
}

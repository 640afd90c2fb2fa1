//! `mirror`: mirrors left and right, always: the second look of test-time flipping.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::no_arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct Mirror;

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Built {
    no_arguments(arguments)?;
    Ok(Box::new(Mirror))
}

impl Transform for Mirror {
    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        image.flip();
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mirror")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn every_image_is_mirrored() {
        let spec = ImageSpec::new(2, 3, 1);
        for id in 0..10 {
            assert_eq!(run(build, "mirror", spec, &[1, 2, 3, 4, 5, 6], id), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        }
    }
}

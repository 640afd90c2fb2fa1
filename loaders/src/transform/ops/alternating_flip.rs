//! `alternating_flip`: in the first epoch each image is mirrored left and right with probability 1/2, in every other epoch the other
//! way round, so that two epochs in a row show both sides of every image (airbench; Jordan 2024, arXiv 2404.00498).

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::no_arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct AlternatingFlip;

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Built {
    no_arguments(arguments)?;
    Ok(Box::new(AlternatingFlip))
}

impl Transform for AlternatingFlip {
    fn is_geometric(&self) -> bool {
        true
    }

    /// Draws as in the first epoch.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let first = draws.of_epoch(0).happens(0.5);
        if first != (draws.epoch() % 2 == 1) {
            image.flip();
        }
    }
}

impl fmt::Display for AlternatingFlip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("alternating_flip")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::apply;

    #[test]
    fn epochs_show_both_sides_in_turn() {
        let spec = ImageSpec::new(1, 2, 1);
        let mut flipped = 0;
        for id in 0..1000 {
            let of = |epoch| apply(&AlternatingFlip, spec, &[1, 2], &mut Draws::new(1, id, epoch, 3));
            let first = of(0);
            flipped += usize::from(first == [2.0, 1.0]);
            assert!((1..6).all(|epoch| (of(epoch) == first) == (epoch % 2 == 0)), "sample {id}");
        }
        // 500 +- 16
        assert!((430..570).contains(&flipped), "{flipped}");
    }
}

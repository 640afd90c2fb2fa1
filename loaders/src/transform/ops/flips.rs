//! Transforms that mirror an image.

use std::fmt;

use crate::random::Draws;
use crate::transform::call::{no_arguments, only_probability};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};

/// `flip(p)` and `vertical_flip(p)`: mirror an image with probability p (default 1/2).
#[derive(Debug)]
struct Flip {
    probability: f64,
    /// True if the transform mirrors top and bottom instead of left and right.
    vertical: bool,
}

pub(super) fn build_flip(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Flip { probability: only_probability(arguments, 0.5)?, vertical: false }))
}

pub(super) fn build_vertical_flip(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Flip { probability: only_probability(arguments, 0.5)?, vertical: true }))
}

impl Transform for Flip {
    fn is_geometric(&self) -> bool {
        true
    }

    fn flips_vertically(&self) -> bool {
        self.vertical
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if !draws.happens(self.probability) {
            return;
        }
        if self.vertical {
            image.flip_vertically();
        } else {
            image.flip_horizontally();
        }
    }
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.vertical, self.probability) {
            (true, p) => write!(f, "vertical_flip({p})"),
            (false, 0.5) => f.write_str("flip"),
            (false, p) => write!(f, "flip({p})"),
        }
    }
}

/// `mirror`: always mirrors left and right. Test-time flipping uses it for the second view.
#[derive(Debug)]
struct Mirror;

pub(super) fn build_mirror(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    no_arguments(arguments)?;
    Ok(Box::new(Mirror))
}

impl Transform for Mirror {
    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        image.flip_horizontally();
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mirror")
    }
}

/// `alternating_flip`: in the first epoch, mirrors each image left and right with probability 1/2. Every second epoch
/// does the opposite, so that two consecutive epochs show both sides of every image (airbench, Jordan 2024, arXiv
/// 2404.00498).
#[derive(Debug)]
struct AlternatingFlip;

pub(super) fn build_alternating_flip(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    no_arguments(arguments)?;
    Ok(Box::new(AlternatingFlip))
}

impl Transform for AlternatingFlip {
    fn is_geometric(&self) -> bool {
        true
    }

    /// Uses the draws of epoch 0 in every epoch, so that each image keeps the result of its first draw.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let first = draws.of_epoch(0).happens(0.5);
        if first != (draws.epoch() % 2 == 1) {
            image.flip_horizontally();
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
    use crate::transform::testing::{draws, run};

    #[test]
    fn half_of_the_images_are_mirrored() {
        let spec = ImageSpec::new(1, 3, 1);
        let mut flipped = 0;
        for id in 0..1000 {
            let out = run(build_flip, "flip", spec, &[1, 2, 3], id);
            if draws(id).unit() < 0.5 {
                assert_eq!(out, [3.0, 2.0, 1.0]);
                flipped += 1;
            } else {
                assert_eq!(out, [1.0, 2.0, 3.0]);
            }
        }
        // The count is expected to be 500, with a standard deviation of 16.
        assert!((430..570).contains(&flipped), "{flipped}");
    }

    #[test]
    fn by_a_probability_of_ones_own() {
        let spec = ImageSpec::new(1, 2, 1);
        let flipped = (0..1000).filter(|id| run(build_flip, "flip(0.1)", spec, &[1, 2], *id)[0] == 2.0).count();
        // The count is expected to be 100, with a standard deviation of 9.5.
        assert!((60..140).contains(&flipped), "{flipped}");
    }
}

#[cfg(test)]
mod vertical_flip_tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn half_of_the_images_are_mirrored() {
        let spec = ImageSpec::new(3, 1, 1);
        let mut flipped = 0;
        for id in 0..1000 {
            let out = run(build_vertical_flip, "vertical_flip", spec, &[1, 2, 3], id);
            if draws(id).unit() < 0.5 {
                assert_eq!(out, [3.0, 2.0, 1.0]);
                flipped += 1;
            } else {
                assert_eq!(out, [1.0, 2.0, 3.0]);
            }
        }
        // The count is expected to be 500, with a standard deviation of 16.
        assert!((430..570).contains(&flipped), "{flipped}");
    }

    #[test]
    fn by_a_probability_of_ones_own() {
        let spec = ImageSpec::new(2, 1, 1);
        let flipped =
            (0..1000).filter(|id| run(build_vertical_flip, "vertical_flip(0.1)", spec, &[1, 2], *id)[0] == 2.0).count();
        // The count is expected to be 100, with a standard deviation of 9.5.
        assert!((60..140).contains(&flipped), "{flipped}");
    }
}

#[cfg(test)]
mod mirror_tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn every_image_is_mirrored() {
        let spec = ImageSpec::new(2, 3, 1);
        for id in 0..10 {
            assert_eq!(run(build_mirror, "mirror", spec, &[1, 2, 3, 4, 5, 6], id), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        }
    }
}

#[cfg(test)]
mod alternating_flip_tests {
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
        // The count is expected to be 500, with a standard deviation of 16.
        assert!((430..570).contains(&flipped), "{flipped}");
    }
}

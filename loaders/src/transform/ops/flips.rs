//! Transforms that mirror an image.

use crate::random::Draws;
use crate::transform::call::{no_arguments, only_probability};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};

/// Mirrors an image left and right, or top and bottom.
#[derive(Debug)]
enum Flip {
    /// `flip(p)`: mirrors left and right with probability p (default 1/2).
    Horizontal(f64),
    /// `vertical_flip(p)`: mirrors top and bottom with probability p (default 1/2).
    Vertical(f64),
    /// `mirror`: always mirrors left and right. Test-time flipping uses it for the second view.
    Always,
    /// `alternating_flip`: in the first epoch, mirrors each image left and right with probability 1/2. Every second
    /// epoch does the opposite, so that two consecutive epochs show both sides of every image (airbench, Jordan 2024,
    /// arXiv 2404.00498).
    Alternating,
}

pub(super) fn build_flip(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Flip::Horizontal(only_probability(arguments, 0.5)?)))
}

pub(super) fn build_vertical_flip(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Flip::Vertical(only_probability(arguments, 0.5)?)))
}

pub(super) fn build_mirror(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    no_arguments(arguments)?;
    Ok(Box::new(Flip::Always))
}

pub(super) fn build_alternating_flip(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    no_arguments(arguments)?;
    Ok(Box::new(Flip::Alternating))
}

impl Transform for Flip {
    fn is_geometric(&self) -> bool {
        true
    }

    fn flips_vertically(&self) -> bool {
        matches!(self, Self::Vertical(_))
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let flips = match *self {
            Self::Horizontal(probability) | Self::Vertical(probability) => draws.happens(probability),
            Self::Always => true,
            // Every epoch uses the draws of epoch 0, so that each image keeps the result of its first draw.
            Self::Alternating => draws.of_epoch(0).happens(0.5) != (draws.epoch() % 2 == 1),
        };
        match self {
            _ if !flips => {}
            Self::Vertical(_) => image.flip_vertically(),
            _ => image.flip_horizontally(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Horizontal(0.5) => "flip".to_owned(),
            Self::Horizontal(p) => format!("flip({p})"),
            Self::Vertical(p) => format!("vertical_flip({p})"),
            Self::Always => "mirror".to_owned(),
            Self::Alternating => "alternating_flip".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{apply, draws, run};

    #[test]
    fn flip_mirrors_half_of_the_images() {
        for (text, spec) in [("flip", ImageSpec::new(1, 3, 1)), ("vertical_flip", ImageSpec::new(3, 1, 1))] {
            let mut flipped = 0;
            for id in 0..1000 {
                let out = run(text, spec, &[1, 2, 3], id);
                if draws(id).unit() < 0.5 {
                    assert_eq!(out, [3.0, 2.0, 1.0]);
                    flipped += 1;
                } else {
                    assert_eq!(out, [1.0, 2.0, 3.0]);
                }
            }
            // The count is expected to be 500, with a standard deviation of 16.
            assert!((430..570).contains(&flipped), "{text}: {flipped}");
        }
    }

    #[test]
    fn flip_uses_the_given_probability() {
        for (text, spec) in [("flip(0.1)", ImageSpec::new(1, 2, 1)), ("vertical_flip(0.1)", ImageSpec::new(2, 1, 1))] {
            let flipped = (0..1000).filter(|id| run(text, spec, &[1, 2], *id)[0] == 2.0).count();
            // The count is expected to be 100, with a standard deviation of 9.5.
            assert!((60..140).contains(&flipped), "{text}: {flipped}");
        }
    }

    #[test]
    fn mirror_flips_every_image() {
        let spec = ImageSpec::new(2, 3, 1);
        for id in 0..10 {
            assert_eq!(run("mirror", spec, &[1, 2, 3, 4, 5, 6], id), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        }
    }

    #[test]
    fn alternating_flip_changes_the_side_every_epoch() {
        let spec = ImageSpec::new(1, 2, 1);
        let mut flipped = 0;
        for id in 0..1000 {
            let of = |epoch| apply(&Flip::Alternating, spec, &[1, 2], &mut Draws::new(1, id, epoch, 3));
            let first = of(0);
            flipped += usize::from(first == [2.0, 1.0]);
            assert!((1..6).all(|epoch| (of(epoch) == first) == (epoch % 2 == 0)), "sample {id}");
        }
        // The count is expected to be 500, with a standard deviation of 16.
        assert!((430..570).contains(&flipped), "{flipped}");
    }
}

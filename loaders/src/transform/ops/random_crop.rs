//! `random_crop(n)`: a random n x n window of the image, every position equally likely
//! (`tf.image.random_crop`; the CIFAR tutorial's is n = 24).

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::one_size;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;
use crate::transform::square::{cropped, cropped_of_varied};

#[derive(Debug)]
struct RandomCrop {
    size: u32,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let size = one_size(arguments, 1)?;
    Ok(Box::new(RandomCrop { size }))
}

impl Transform for RandomCrop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        cropped(self.size, input)
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, String> {
        cropped_of_varied(self.size, input)
    }

    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let top = draws.below(height - self.size + 1);
        let left = draws.below(width - self.size + 1);
        image.crop(Rectangle { top, left, height: self.size, width: self.size });
    }
}

impl fmt::Display for RandomCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "random_crop({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::{draws, run};

    #[test]
    fn windows_lie_inside_and_reach_every_corner() {
        let spec = ImageSpec::new(3, 3, 1);
        let bytes: Vec<u8> = (0..9).collect();
        let mut seen = [0; 4];
        for id in 0..400 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(2), expected.below(2));
            seen[(y * 2 + x) as usize] += 1;
            let first = (y * 3 + x) as f32;
            assert_eq!(run(build, "random_crop(2)", spec, &bytes, id), [first, first + 1.0, first + 3.0, first + 4.0]);
        }
        // 100 +- 8.7 each.
        assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    }
}

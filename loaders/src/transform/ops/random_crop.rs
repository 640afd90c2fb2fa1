//! `random_crop(n)`: a random n x n window of the image, every position equally likely
//! (`tf.image.random_crop`; the CIFAR tutorial's is n = 24).

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::only_size;
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::cropped::{cropped, cropped_of_varied};
use crate::transform::op::{Built, Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;
use crate::transform::size::Size;

#[derive(Debug)]
struct RandomCrop {
    size: Size,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    let size = only_size(arguments)?;
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
        let (spec, Size { height, width }) = (image.spec(), self.size);
        let top = draws.below(spec.height - height + 1);
        let left = draws.below(spec.width - width + 1);
        image.crop(Rectangle { top, left, height, width });
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
    use crate::transform::testing::{draws, run_any};

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
            assert_eq!(
                run_any(build, "random_crop(2)", spec, &bytes, id),
                [first, first + 1.0, first + 3.0, first + 4.0]
            );
        }
        // 100 +- 8.7 each.
        assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    }
}

//! `pad_crop(n)`: n zero pixels on each side, then a random crop back to the same size; offsets
//! uniform over 0 to 2n. The usual CIFAR augmentation with n = 4.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::one_size;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Transform};

#[derive(Debug)]
struct PadCrop {
    padding: u32,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let padding = one_size(arguments, 0)?;
    Ok(Box::new(PadCrop { padding }))
}

impl Transform for PadCrop {
    fn is_geometric(&self) -> bool {
        true
    }

    fn pads(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let mut offset = || draws.below(2 * self.padding + 1) as i32 - self.padding as i32;
        let (down, right) = (offset(), offset());
        image.shift(down, right);
    }
}

impl fmt::Display for PadCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pad_crop({})", self.padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn every_offset_occurs_and_pads_with_zero() {
        let spec = ImageSpec::new(2, 2, 1);
        let padded = [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 0.0], [0.0, 3.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]];
        let mut seen = [0; 9];
        for id in 0..900 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(3) as usize, expected.below(3) as usize);
            seen[y * 3 + x] += 1;
            assert_eq!(
                run(build, "pad_crop(1)", spec, &[1, 2, 3, 4], id),
                [padded[y][x], padded[y][x + 1], padded[y + 1][x], padded[y + 1][x + 1]]
            );
        }
        // 100 +- 9.4 each.
        assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    }
}

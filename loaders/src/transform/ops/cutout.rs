//! `cutout(n)`: zeros in one square of n x n (n even; an odd n counts as n - 1), its centre uniform over the
//! image, cut at the borders (DeVries & Taylor 2017; n = 16 for CIFAR-10, 8 for CIFAR-100). They apply it
//! after `normalize`, where zero is the mean colour.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::one_size;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Transform};
use crate::transform::rectangle::Rectangle;

#[derive(Debug)]
struct Cutout {
    size: u32,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let size = one_size(arguments, 2)?;
    Ok(Box::new(Cutout { size }))
}

impl Transform for Cutout {
    /// Draws the row of the centre, then its column.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let half = self.size / 2;
        let mut side = |length: u32| {
            let centre = draws.below(length);
            let (from, to) = (centre.saturating_sub(half), (centre + half).min(length));
            (from, to - from)
        };
        let ((top, height), (left, width)) = (side(height), side(width));
        image.fill(Rectangle { top, left, height, width }, || 0.0);
    }
}

impl fmt::Display for Cutout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cutout({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::{draws, run};

    #[test]
    fn the_square_lies_about_its_centre_and_is_cut_at_the_borders() {
        let spec = ImageSpec::new(5, 6, 2);
        let mut seen = [0; 30];
        for id in 0..3000 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(5) as usize, expected.below(6) as usize);
            seen[y * 6 + x] += 1;
            let out = run(build, "cutout(4)", spec, &[9; 60], id);
            for (i, value) in out.iter().enumerate() {
                let (row, column) = (i / 6 % 5, i % 6);
                let inside = (row + 2 >= y && row < y + 2) && (column + 2 >= x && column < x + 2);
                assert_eq!(*value, if inside { 0.0 } else { 9.0 }, "{id}: {row} {column}");
            }
        }
        // 100 +- 10 each.
        assert!(seen.iter().all(|n| (55..145).contains(n)), "{seen:?}");
    }
}

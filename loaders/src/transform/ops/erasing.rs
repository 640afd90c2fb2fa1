//! Transforms that set a part of an image to zero or to noise.

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::one_size;
use crate::transform::canvas::Canvas;
use crate::transform::geometry::Rectangle;
use crate::transform::op::{Context, Transform};

/// `cutout(n)`: sets one n x n square to zero. n should be even, and an odd n counts as n - 1. The centre is uniform
/// over the image, and the square is cut off at the borders (DeVries & Taylor 2017, with n = 16 for CIFAR-10 and 8 for
/// CIFAR-100). The paper applies it after `normalize`, where zero is the mean colour.
#[derive(Debug)]
struct Cutout {
    size: u32,
}

pub(super) fn build_cutout(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
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

    fn text(&self) -> String {
        format!("cutout({})", self.size)
    }
}

// `random_erasing(p)`: with probability p, sets one rectangle to zero. Its area is U[0.02, 0.33) of the image, and its
// height / width is log-uniform over 0.3 to 3.3. There are at most ten attempts to find one that is smaller than the
// image. This is torchvision's `RandomErasing` (Zhong et al. 2017). `random_erasing(p, s)` fills the rectangle with
// N(0, s^2), drawn for each value. s = 1 is torchvision's `value="random"` and timm's `pixel`. Four more numbers
// replace the ranges: minimum and maximum area, then minimum and maximum height / width.
//
// Use it after `normalize`. timm's ranges (aspect ratios from 0.3 to 1/0.3 and an area of at most 1/3) can be given as
// numbers.

/// Maximum number of attempts to find a rectangle that is smaller than the image.
const TRIES: usize = 10;

#[derive(Debug)]
struct RandomErasing {
    probability: f64,
    noise: f64,
    /// Minimum and maximum fraction of the image's area.
    area: [f64; 2],
    /// Minimum and maximum height / width.
    aspect: [f64; 2],
}

pub(super) fn build_random_erasing(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let (probability, noise, area, aspect) = match *arguments {
        [p] => (p, 0.0, [0.02, 0.33], [0.3, 3.3]),
        [p, noise] => (p, noise, [0.02, 0.33], [0.3, 3.3]),
        [p, noise, least, most, low, high] => (p, noise, [least, most], [low, high]),
        _ => return Err(format!("expected 1, 2 or 6 arguments, got {}", arguments.len())),
    };
    if !(0.0..=1.0).contains(&probability) {
        return Err(format!("expected a probability from 0 to 1, got {probability}"));
    }
    if noise < 0.0 {
        return Err(format!("expected a noise_deviation of at least 0, got {noise}"));
    }
    if !(0.0 < area[0] && area[0] <= area[1] && area[1] <= 1.0) {
        return Err(format!("expected 0 < min_area <= max_area <= 1, got {} and {}", area[0], area[1]));
    }
    if !(0.0 < aspect[0] && aspect[0] <= aspect[1]) {
        return Err(format!("expected 0 < min_aspect <= max_aspect, got {} and {}", aspect[0], aspect[1]));
    }
    Ok(Box::new(RandomErasing { probability, noise, area, aspect }))
}

impl Transform for RandomErasing {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if f64::from(draws.unit()) >= self.probability {
            return;
        }
        let Some(rectangle) = self.rectangle(image.spec(), draws) else { return };
        if self.noise == 0.0 {
            image.fill(rectangle, || 0.0);
            return;
        }
        let mut spare = None;
        image.fill(rectangle, || {
            let normal = spare.take().unwrap_or_else(|| {
                let (now, later) = draws.normals();
                spare = Some(later);
                now
            });
            (f64::from(normal) * self.noise) as f32
        });
    }

    fn text(&self) -> String {
        let ([least, most], [low, high]) = (self.area, self.aspect);
        format!("random_erasing({}, {}, {least}, {most}, {low}, {high})", self.probability, self.noise)
    }
}

impl RandomErasing {
    /// Draws the area and the aspect ratio until both sides are smaller than the image's, then the row and column of
    /// the corner.
    fn rectangle(&self, spec: ImageSpec, draws: &mut Draws) -> Option<Rectangle> {
        let (rows, columns) = (f64::from(spec.height), f64::from(spec.width));
        let between = |low: f64, high: f64, unit: f32| low + f64::from(unit) * (high - low);
        for _ in 0..TRIES {
            let area = rows * columns * between(self.area[0], self.area[1], draws.unit());
            let aspect = between(self.aspect[0].ln(), self.aspect[1].ln(), draws.unit()).exp();
            let height = (area * aspect).sqrt().round_ties_even();
            let width = (area / aspect).sqrt().round_ties_even();
            if height < rows && width < columns {
                let (height, width) = (height as u32, width as u32);
                let top = draws.below(spec.height - height + 1);
                let left = draws.below(spec.width - width + 1);
                return Some(Rectangle { top, left, height, width });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::{draws, run};

    #[test]
    fn cutout_square_is_centred_and_clipped_at_the_borders() {
        let spec = ImageSpec::new(5, 6, 2);
        let mut seen = [0; 30];
        for id in 0..3000 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(5) as usize, expected.below(6) as usize);
            seen[y * 6 + x] += 1;
            let out = run("cutout(4)", spec, &[9; 60], id);
            for (i, value) in out.iter().enumerate() {
                let (row, column) = (i / 6 % 5, i % 6);
                let inside = (row + 2 >= y && row < y + 2) && (column + 2 >= x && column < x + 2);
                assert_eq!(*value, if inside { 0.0 } else { 9.0 }, "{id}: {row} {column}");
            }
        }
        // Each count is expected to be 100, with a standard deviation of 10.
        assert!(seen.iter().all(|n| (55..145).contains(n)), "{seen:?}");
    }

    const SPEC: ImageSpec = ImageSpec::new(24, 16, 3);

    #[test]
    fn random_erasing_has_the_requested_frequency_and_area() {
        let (mut erased, mut area) = (0, 0.0);
        for id in 0..2000 {
            let out = run("random_erasing(0.25)", SPEC, &[7; 1152], id);
            let zeros = out.iter().filter(|x| **x == 0.0).count();
            if zeros > 0 {
                erased += 1;
                area += zeros as f64 / 1152.0;
                assert!((15..=410).contains(&zeros), "{zeros}");
            }
        }
        // The count is expected to be 500, with a standard deviation of 19. The mean area is 0.175, minus the effect of
        // failed attempts.
        assert!((430..570).contains(&erased), "{erased}");
        assert!((0.15..0.19).contains(&(area / f64::from(erased))), "{area}");
    }

    #[test]
    fn noise_is_normal_and_differs_from_value_to_value() {
        let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for id in 0..400 {
            let out = run("random_erasing(1, 2)", SPEC, &[77; 1152], id);
            let noise: Vec<f64> = out.iter().filter(|x| **x != 77.0).map(|x| f64::from(*x)).collect();
            let different = noise.windows(2).filter(|w| w[0] != w[1]).count();
            assert!(different + 1 >= noise.len());
            n += noise.len() as f64;
            sum += noise.iter().sum::<f64>();
            squares += noise.iter().map(|x| x * x).sum::<f64>();
        }
        // 80,000 values: the standard errors are 0.007 and 0.02.
        assert!((sum / n).abs() < 0.04, "{}", sum / n);
        assert!((squares / n - 4.0).abs() < 0.12, "{}", squares / n);
    }
}

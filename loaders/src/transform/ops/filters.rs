//! The transform that blurs an image.

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::pixels;
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};

/// `gaussian_blur(side, low, high)`: blurs with a Gaussian over a square with odd side. Its standard deviation is
/// uniform over low to high pixels. The default is 0.1 to 2. `gaussian_blur(side, sigma)` has a fixed sigma. The image
/// is mirrored at its borders, and every image is blurred. This is torchvision's `GaussianBlur`.
#[derive(Debug)]
struct GaussianBlur {
    side: u32,
    low: f64,
    high: f64,
}

pub(super) fn build_gaussian_blur(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    let (side, low, high) = match *arguments {
        [side] => (side, 0.1, 2.0),
        [side, sigma] => (side, sigma, sigma),
        [side, low, high] => (side, low, high),
        _ => return Err(format!("expected 1, 2 or 3 arguments, got {}", arguments.len())),
    };
    let side = pixels(side, 1)?;
    if side % 2 == 0 {
        return Err(format!("expected an odd side, got {side}"));
    }
    if !(0.0 < low && low <= high) {
        return Err(format!("expected values of sigma 0 < low <= high, got {low} and {high}"));
    }
    Ok(Box::new(GaussianBlur { side, low, high }))
}

impl Transform for GaussianBlur {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        match self.side / 2 < input.height.min(input.width) {
            true => Ok(input),
            false => Err(format!(
                "a blur of {0}x{0} pixels needs a border of {1} pixels, which must be smaller than the shorter side of the image \
                 ({input})",
                self.side,
                self.side / 2
            )),
        }
    }

    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let sigma = draws.range(self.low as f32, self.high as f32);
        image.blur(self.side as usize, sigma.into());
    }

    fn text(&self) -> String {
        format!("gaussian_blur({}, {}, {})", self.side, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;
    use crate::transform::testing::{build, run};

    #[test]
    fn blur_spreads_a_dot_evenly_and_keeps_a_flat_image() {
        let mut dot = [0; 49];
        dot[24] = 255;
        let out = run("gaussian_blur(5, 1)", ImageSpec::new(7, 7, 1), &dot, 0);
        let at = |y: usize, x: usize| out[7 * y + x];
        assert_eq!([at(3, 2), at(2, 3), at(4, 3)], [at(3, 4); 3]);
        assert_eq!(at(0, 3), 0.0);
        // (0.4026)^2 * 255
        assert_eq!(at(3, 3), 41.0);
        assert_eq!(run("gaussian_blur(3)", ImageSpec::new(3, 2, 1), &[90; 6], 0), [90.0; 6]);
    }

    #[test]
    fn invalid_blur_kernels_are_refused() {
        let spec = ImageSpec::new(5, 9, 1);
        let problem = |text| build(text, spec).and_then(|op| op.output(spec)).unwrap_err();
        assert_mentions(&problem("gaussian_blur(11)"), &["11x11", "5x9x1"]);
        assert_mentions(&problem("gaussian_blur(4)"), &["odd", "4"]);
        assert_mentions(&problem("gaussian_blur(3, 0)"), &["0 < low <= high", "0 and 0"]);
        assert_mentions(&problem("gaussian_blur(3, 2, 1)"), &["0 < low <= high", "2 and 1"]);
    }
}

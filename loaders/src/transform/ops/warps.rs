//! Affine and perspective maps of an image.

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::bytes::{self, Edge, Grid, Quad, Sampling, coefficients, rotation};
use crate::transform::call::{Arguments, probability_after_one};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};

/// Sampling methods of `affine` and `rotation` by name. The first is the default, as in torchvision.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Nearest.named(), Sampling::Bilinear(Edge::Shaded).named()];

#[derive(Debug)]
struct Affine {
    degrees: f64,
    /// Maximum shift, as a fraction of width and height.
    shares: [f64; 2],
    /// Minimum and maximum of the scale.
    scale: [f64; 2],
    /// Maximum shear angles in x and y, in degrees.
    shear: [f64; 2],
    sampling: Sampling,
}

pub(super) fn build_affine(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let (degrees, shares, scale, shear) = match *arguments.no_size()? {
        [d] => (d, [0.0; 2], [1.0; 2], [0.0; 2]),
        [d, x, y] => (d, [x, y], [1.0; 2], [0.0; 2]),
        [d, x, y, low, high] => (d, [x, y], [low, high], [0.0; 2]),
        [d, x, y, low, high, sx] => (d, [x, y], [low, high], [sx, 0.0]),
        [d, x, y, low, high, sx, sy] => (d, [x, y], [low, high], [sx, sy]),
        ref other => return Err(format!("expected 1, 3, 5, 6 or 7 numbers, got {}", other.len())),
    };
    if !(0.0..=180.0).contains(&degrees) {
        return Err(format!("expected degrees from 0 to 180, got {degrees}"));
    }
    if let Some(bad) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return Err(format!("expected x and y from 0 to 1, as fractions of width and height, got {bad}"));
    }
    if !(0.0 < scale[0] && scale[0] <= scale[1]) {
        return Err(format!("expected scale factors 0 < low <= high, got {} and {}", scale[0], scale[1]));
    }
    if let Some(bad) = shear.iter().find(|angle| !(0.0..90.0).contains(*angle)) {
        return Err(format!("expected shears of at least 0 and below 90 degrees, got {bad}"));
    }
    Ok(Box::new(Affine { degrees, shares, scale, shear, sampling: arguments.choice(&SAMPLINGS)? }))
}

impl Affine {
    /// Draws angle, columns, rows, scale and both shears.
    fn draw(&self, spec: ImageSpec, draws: &mut Draws) -> bytes::Affine {
        let mut within = |most: f64| f64::from(draws.range(-most as f32, most as f32));
        let angle = within(self.degrees);
        let columns = within(self.shares[0] * f64::from(spec.width)).round_ties_even();
        let rows = within(self.shares[1] * f64::from(spec.height)).round_ties_even();
        let scale = f64::from(draws.range(self.scale[0] as f32, self.scale[1] as f32));
        let shear = self.shear.map(|most| f64::from(draws.range(-most as f32, most as f32)));
        bytes::Affine { angle, translate: (columns, rows), scale, shear: shear.into(), ..bytes::Affine::IDENTITY }
    }
}

impl Transform for Affine {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let map = self.draw(image.spec(), draws);
        image.warp(&map.grid(image.shape()), self.sampling);
    }

    fn text(&self) -> String {
        let Self { degrees, shares: [x, y], scale: [low, high], shear: [sx, sy], sampling } = self;
        format!("affine({degrees}, {x}, {y}, {low}, {high}, {sx}, {sy}, {})", sampling.name())
    }
}

// `rotation(d)`: rotates the image about its centre by an angle that is uniform over -d to d degrees. Positive angles
// are counterclockwise. `rotation(low, high)` sets the range (torchvision's `RandomRotation`). It uses the nearest
// pixel, or interpolates between four pixels with a last argument `bilinear`. Pixels from outside the image are zero.

#[derive(Debug)]
struct Rotation {
    /// Lowest angle in degrees, counterclockwise.
    low: f64,
    high: f64,
    sampling: Sampling,
}

pub(super) fn build_rotation(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let (low, high) = match *arguments.no_size()? {
        [degrees] if degrees < 0.0 => return Err(format!("expected an angle of at least 0, got {degrees}")),
        [degrees] => (-degrees, degrees),
        [low, high] => (low, high),
        ref other => return Err(format!("expected 1 or 2 numbers, got {}", other.len())),
    };
    if !(-360.0..=high).contains(&low) || high > 360.0 {
        return Err(format!("expected angles -360 <= low <= high <= 360, got {low} and {high}"));
    }
    Ok(Box::new(Rotation { low, high, sampling: arguments.choice(&SAMPLINGS)? }))
}

impl Transform for Rotation {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let angle = draws.range(self.low as f32, self.high as f32);
        if image.is_bytes() {
            // Resized values are rounded to bytes even if the angle is 0.
            image.byte_image();
        }
        if let Some(grid) = rotation(angle.into(), image.shape()) {
            image.warp(&grid, self.sampling);
        }
    }

    fn text(&self) -> String {
        format!("rotation({}, {}, {})", self.low, self.high, self.sampling.name())
    }
}

// `perspective(d, p)`: with probability p (default 1/2), moves each corner inwards by up to the fraction d of half the
// width and height (torchvision's `RandomPerspective`). It interpolates between four pixels, or uses the nearest pixel
// with a last argument `nearest`. Pixels from outside the image are zero.

/// Sampling methods by name. The first is the default, as in torchvision.
const PERSPECTIVE_SAMPLINGS: [(&str, Sampling); 2] =
    [Sampling::Bilinear(Edge::Shaded).named(), Sampling::Nearest.named()];

#[derive(Debug)]
struct Perspective {
    distortion: f64,
    probability: f64,
    sampling: Sampling,
}

pub(super) fn build_perspective(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let [distortion, ref rest @ ..] = *arguments.no_size()? else {
        return Err("expected 1 or 2 numbers, got 0".into());
    };
    if !(0.0..=1.0).contains(&distortion) {
        return Err(format!("expected a distortion from 0 to 1, got {distortion}"));
    }
    let (probability, sampling) = (probability_after_one(rest, 0.5)?, arguments.choice(&PERSPECTIVE_SAMPLINGS)?);
    Ok(Box::new(Perspective { distortion, probability, sampling }))
}

impl Perspective {
    /// Draws the new positions (x, y) of the corners: top left, top right, bottom right, bottom left.
    fn draw(&self, spec: ImageSpec, draws: &mut Draws) -> Quad {
        let reach = |side: u32| (self.distortion * f64::from(side / 2)) as u32 + 1;
        let (right, down) = (reach(spec.width), reach(spec.height));
        let mut near = |reach: u32| f64::from(draws.below(reach));
        let far = |side: u32, reach: u32, draw: f64| f64::from(side - reach) + draw;
        let top_left = (near(right), near(down));
        let top_right = (far(spec.width, right, near(right)), near(down));
        let bottom_right = (far(spec.width, right, near(right)), far(spec.height, down, near(down)));
        let bottom_left = (near(right), far(spec.height, down, near(down)));
        [top_left, top_right, bottom_right, bottom_left]
    }
}

impl Transform for Perspective {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if !draws.happens(self.probability) {
            return;
        }
        let spec = image.spec();
        let (right, down) = (f64::from(spec.width - 1), f64::from(spec.height - 1));
        let corners = [(0.0, 0.0), (right, 0.0), (right, down), (0.0, down)];
        // If the image has only one row or column, its corners are on a line and it does not change.
        if let Some(map) = coefficients(corners, self.draw(spec, draws)) {
            image.warp(&Grid::perspective(map, image.shape()), self.sampling);
        }
    }

    fn text(&self) -> String {
        format!("perspective({}, {}, {})", self.distortion, self.probability, self.sampling.name())
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn translation_by_a_share_moves_by_whole_pixels() {
        let spec = ImageSpec::new(1, 5, 1);
        let mut seen = [0; 5];
        for id in 0..500 {
            let mut expected = draws(id);
            expected.unit();
            let by = f64::from(expected.range(-2.0, 2.0)).round_ties_even() as i32;
            seen[(by + 2) as usize] += 1;
            let out = run("affine(0, 0.4, 0)", spec, &[1, 2, 3, 4, 5], id);
            let moved = |x: i32| if (0..5).contains(&(x - by)) { (x - by + 1) as f32 } else { 0.0 };
            assert_eq!(out, (0..5).map(moved).collect::<Vec<_>>(), "by {by}");
        }
        assert!(seen.iter().all(|n| *n > 30), "{seen:?}");
    }

    #[test]
    fn affine_with_scale_2_shows_the_centre() {
        let spec = ImageSpec::new(2, 4, 1);
        let out = run("affine(0, 0, 0, 2, 2)", spec, &[1, 2, 3, 4, 5, 6, 7, 8], 0);
        assert_eq!(out[..4], [2.0, 2.0, 3.0, 3.0]);
    }

    #[test]
    fn rotation_by_right_angles_moves_whole_pixels() {
        let spec = ImageSpec::new(2, 2, 1);
        for how in ["nearest", "bilinear"] {
            let turned = |angle: i32| run(&format!("rotation({angle}, {angle}, {how})"), spec, &[1, 2, 3, 4], 0);
            assert_eq!(turned(0), [1.0, 2.0, 3.0, 4.0]);
            assert_eq!(turned(90), [2.0, 4.0, 1.0, 3.0]);
            assert_eq!(turned(180), [4.0, 3.0, 2.0, 1.0]);
            assert_eq!(turned(-90), [3.0, 1.0, 4.0, 2.0]);
        }
    }

    #[test]
    fn perspective_without_distortion_changes_nothing() {
        let bytes: Vec<u8> = (0..35).map(|i| i * 7).collect();
        let expected: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte)).collect();
        for text in ["perspective(0, 1)", "perspective(0, 1, nearest)", "perspective(1, 0)"] {
            assert_eq!(run(text, ImageSpec::new(5, 7, 1), &bytes, 1), expected, "{text}");
        }
        assert_eq!(run("perspective(1, 1)", ImageSpec::new(1, 1, 1), &[9], 1), [9.0]);
    }
}

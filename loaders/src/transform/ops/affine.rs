//! `affine(d, x, y, low, high, sx, sy)`: turns by up to d degrees, moves by up to shares x of the width and y of the height, scales by
//! low to high, shears by up to sx and sy degrees, all uniform and, but for the scale, of either sign (torchvision's `RandomAffine`).
//! Numbers may be left out from behind: both shears or one, the scales, the shares. Pixels are the nearest ones, with a last argument
//! `bilinear` between four; outside is zero.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::bytes::{self, Edge, Sampling};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

/// How pixels are made; torchvision's default first.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Nearest.named(), Sampling::Bilinear(Edge::Shaded).named()];

#[derive(Debug)]
struct Affine {
    degrees: f64,
    /// Of the width and of the height.
    shares: [f64; 2],
    /// Least and greatest.
    scale: [f64; 2],
    /// In degrees.
    shear: [f64; 2],
    sampling: Sampling,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    let (degrees, shares, scale, shear) = match *arguments.no_size()? {
        [d] => (d, [0.0; 2], [1.0; 2], [0.0; 2]),
        [d, x, y] => (d, [x, y], [1.0; 2], [0.0; 2]),
        [d, x, y, low, high] => (d, [x, y], [low, high], [0.0; 2]),
        [d, x, y, low, high, sx] => (d, [x, y], [low, high], [sx, 0.0]),
        [d, x, y, low, high, sx, sy] => (d, [x, y], [low, high], [sx, sy]),
        ref other => return Err(format!("expected 1, 3, 5, 6 or 7 numbers, got {}", other.len())),
    };
    if !(0.0..=180.0).contains(&degrees) {
        return Err(format!("expected an angle from 0 to 180, got {degrees}"));
    }
    if let Some(bad) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return Err(format!("expected shares from 0 to 1, got {bad}"));
    }
    if !(0.0 < scale[0] && scale[0] <= scale[1]) {
        return Err(format!("expected scales 0 < low <= high, got {} and {}", scale[0], scale[1]));
    }
    if let Some(bad) = shear.iter().find(|angle| !(0.0..90.0).contains(*angle)) {
        return Err(format!("expected shears from 0 to less than 90 degrees, got {bad}"));
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
        bytes::affine(image.byte_image(), &map, self.sampling);
    }
}

impl fmt::Display for Affine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { degrees, shares: [x, y], scale: [low, high], shear: [sx, sy], sampling } = self;
        write!(f, "affine({degrees}, {x}, {y}, {low}, {high}, {sx}, {sy}, {})", sampling.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::{draws, run_any};

    #[test]
    fn shares_move_the_image_by_whole_pixels() {
        let spec = ImageSpec::new(1, 5, 1);
        let mut seen = [0; 5];
        for id in 0..500 {
            let mut expected = draws(id);
            expected.unit();
            let by = f64::from(expected.range(-2.0, 2.0)).round_ties_even() as i32;
            seen[(by + 2) as usize] += 1;
            let out = run_any(build, "affine(0, 0.4, 0)", spec, &[1, 2, 3, 4, 5], id);
            let moved = |x: i32| if (0..5).contains(&(x - by)) { (x - by + 1) as f32 } else { 0.0 };
            assert_eq!(out, (0..5).map(moved).collect::<Vec<_>>(), "by {by}");
        }
        assert!(seen.iter().all(|n| *n > 30), "{seen:?}");
    }

    #[test]
    fn twice_the_scale_shows_the_middle() {
        let spec = ImageSpec::new(2, 4, 1);
        let out = run_any(build, "affine(0, 0, 0, 2, 2)", spec, &[1, 2, 3, 4, 5, 6, 7, 8], 0);
        assert_eq!(out[..4], [2.0, 2.0, 3.0, 3.0]);
    }
}

//! `rotation(d)`: turns the image about its middle by an angle uniform over -d to d degrees, against the clock if it is positive;
//! `rotation(low, high)`: over low to high (torchvision's `RandomRotation`). Pixels are the nearest ones, with a last argument
//! `bilinear` between four; outside is zero.

use std::fmt;

use crate::random::Draws;
use crate::transform::bytes::{self, Edge, Sampling};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

/// How pixels are made; torchvision's default first.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Nearest.named(), Sampling::Bilinear(Edge::Shaded).named()];

#[derive(Debug)]
struct Rotation {
    /// In degrees.
    low: f64,
    high: f64,
    sampling: Sampling,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
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
        bytes::rotate(image.byte_image(), angle.into(), self.sampling);
    }
}

impl fmt::Display for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rotation({}, {}, {})", self.low, self.high, self.sampling.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run_any;

    #[test]
    fn right_angles_move_pixels_whole() {
        let spec = ImageSpec::new(2, 2, 1);
        for how in ["nearest", "bilinear"] {
            let turned =
                |angle: i32| run_any(build, &format!("rotation({angle}, {angle}, {how})"), spec, &[1, 2, 3, 4], 0);
            assert_eq!(turned(0), [1.0, 2.0, 3.0, 4.0]);
            assert_eq!(turned(90), [2.0, 4.0, 1.0, 3.0]);
            assert_eq!(turned(180), [4.0, 3.0, 2.0, 1.0]);
            assert_eq!(turned(-90), [3.0, 1.0, 4.0, 2.0]);
        }
    }
}

//! `perspective(d, p)`: with probability p, 1/2 if it is left out, each corner moves inwards by up to a share d of half the width and
//! height (torchvision's `RandomPerspective`). Pixels are made between four, with a last argument `nearest` of one; outside is zero.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::only_probability;
use crate::transform::bytes::{Edge, Grid, Quad, Sampling, coefficients, warp};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

/// How pixels are made; torchvision's default first.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Bilinear(Edge::Shaded).named(), Sampling::Nearest.named()];

#[derive(Debug)]
struct Perspective {
    distortion: f64,
    probability: f64,
    sampling: Sampling,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    let [distortion, ref rest @ ..] = *arguments.no_size()? else {
        return Err("expected 1 or 2 numbers, got 0".into());
    };
    if !(0.0..=1.0).contains(&distortion) {
        return Err(format!("expected a distortion from 0 to 1, got {distortion}"));
    }
    let (probability, sampling) = (only_probability(rest, 0.5)?, arguments.choice(&SAMPLINGS)?);
    Ok(Box::new(Perspective { distortion, probability, sampling }))
}

impl Perspective {
    /// Draws where the corners go: x and y of the top left, top right, bottom right, bottom left.
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
        // corners of an image of one row or column lie on a line; it stays
        if let Some(map) = coefficients(corners, self.draw(spec, draws)) {
            let image = image.byte_image();
            let grid = Grid::perspective(map, image.shape());
            warp(image, &grid, self.sampling);
        }
    }
}

impl fmt::Display for Perspective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "perspective({}, {}, {})", self.distortion, self.probability, self.sampling.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::run_any;

    #[test]
    fn without_distortion_the_image_stays() {
        let bytes: Vec<u8> = (0..35).map(|i| i * 7).collect();
        let expected: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte)).collect();
        for text in ["perspective(0, 1)", "perspective(0, 1, nearest)", "perspective(1, 0)"] {
            assert_eq!(run_any(build, text, ImageSpec::new(5, 7, 1), &bytes, 1), expected, "{text}");
        }
        assert_eq!(run_any(build, "perspective(1, 1)", ImageSpec::new(1, 1, 1), &[9], 1), [9.0]);
    }
}

//! `brightness(d)`: adds one number from U[-d, d) to all values, which are on the scale 0 to 255, and
//! does not clip (`tf.image.random_brightness` on floats; the CIFAR tutorial's d is 63).

use std::fmt;

use crate::random::Draws;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Transform};

#[derive(Debug)]
struct Brightness {
    max_delta: f32,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    match *arguments {
        [max_delta] if max_delta >= 0.0 => Ok(Box::new(Brightness { max_delta: max_delta as f32 })),
        [max_delta] => Err(format!("expected at least 0, got {max_delta}")),
        _ => Err(format!("expected 1 argument, got {}", arguments.len())),
    }
}

impl Transform for Brightness {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let delta = draws.range(-self.max_delta, self.max_delta);
        for value in image.floats() {
            *value += delta;
        }
    }
}

impl fmt::Display for Brightness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "brightness({})", self.max_delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn one_delta_for_the_whole_image_without_clipping() {
        let spec = ImageSpec::new(1, 2, 1);
        let (mut least, mut most) = (f32::MAX, f32::MIN);
        for id in 0..1000 {
            let delta = draws(id).unit() * 126.0 - 63.0;
            let out = run(build, "brightness(63)", spec, &[0, 255], id);
            assert!((out[0] - delta).abs() < 1e-4 && (out[1] - 255.0 - delta).abs() < 1e-4);
            (least, most) = (least.min(out[0]), most.max(out[0]));
        }
        assert!((-63.0..-60.0).contains(&least) && (60.0..63.0).contains(&most));
    }
}

//! `contrast(lower, upper)`: (x - m) * f + m with m the mean of each channel and one f from
//! U[lower, upper), not clipped (`tf.image.random_contrast` on floats; the CIFAR tutorial's are 0.2, 1.8).

use std::fmt;

use crate::random::Draws;
use crate::transform::canvas::Canvas;
use crate::transform::moments::mean;
use crate::transform::op::{Context, Transform};

#[derive(Debug)]
struct Contrast {
    lower: f32,
    upper: f32,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    match *arguments {
        [lower, upper] if 0.0 <= lower && lower <= upper => {
            Ok(Box::new(Contrast { lower: lower as f32, upper: upper as f32 }))
        }
        [lower, upper] => Err(format!("expected 0 <= lower <= upper, got {lower} and {upper}")),
        _ => Err(format!("expected 2 arguments, got {}", arguments.len())),
    }
}

impl Transform for Contrast {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let factor = draws.range(self.lower, self.upper);
        let pixels = image.spec().pixels().max(1);
        for plane in image.floats().chunks_exact_mut(pixels) {
            let mean = mean(plane) as f32;
            for value in plane {
                *value = (*value - mean) * factor + mean;
            }
        }
    }
}

impl fmt::Display for Contrast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "contrast({}, {})", self.lower, self.upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn stretches_each_channel_about_its_own_mean() {
        // Channels (10, 30) and (100, 220): means 20 and 160.
        let spec = ImageSpec::new(1, 2, 2);
        let bytes = [10, 100, 30, 220];
        assert_eq!(run(build, "contrast(2, 2)", spec, &bytes, 0), [0.0, 40.0, 40.0, 280.0]);
        for id in 0..100 {
            let factor = 0.2 + 1.6 * draws(id).unit();
            let out = run(build, "contrast(0.2, 1.8)", spec, &bytes, id);
            for (got, (mean, distance)) in out.iter().zip([(20.0, -10.0), (20.0, 10.0), (160.0, -60.0), (160.0, 60.0)])
            {
                assert!((got - (mean + distance * factor)).abs() < 1e-3);
            }
        }
    }
}

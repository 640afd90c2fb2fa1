//! `standardize`: (x - mean) / max(std, 1 / sqrt(H*W*C)), mean and population std over all pixels and
//! channels of the one image (`tf.image.per_image_standardization`).

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::no_arguments;
use crate::transform::canvas::Canvas;
use crate::transform::moments::{mean, variance};
use crate::transform::op::{Context, Transform};

#[derive(Debug)]
struct Standardize;

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    no_arguments(arguments)?;
    Ok(Box::new(Standardize))
}

impl Transform for Standardize {
    fn rescales(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let values = image.floats();
        let mean = mean(values);
        let least = 1.0 / (values.len().max(1) as f64).sqrt();
        let std = variance(values, mean).sqrt().max(least);
        let (mean, scale) = (mean as f32, (1.0 / std) as f32);
        for value in values {
            *value = (*value - mean) * scale;
        }
    }
}

impl fmt::Display for Standardize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standardize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn mean_and_std_are_of_all_channels_together() {
        // Values 2, 4, 4, 4, 5, 5, 7, 9: mean 5, population std 2.
        let spec = ImageSpec::new(2, 2, 2);
        let out = run(build, "standardize", spec, &[2, 5, 4, 5, 4, 7, 4, 9], 0);
        assert_eq!(out, [-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_flat_image_is_divided_by_the_least_std() {
        let spec = ImageSpec::new(2, 2, 1);
        assert_eq!(run(build, "standardize", spec, &[9; 4], 0), [0.0; 4]);
        // One of 16 values is 1 above: std = sqrt(15)/16 = 0.242, below the least, 1/4.
        let mut bytes = [7; 16];
        bytes[0] = 8;
        let out = run(build, "standardize", ImageSpec::new(4, 4, 1), &bytes, 0);
        assert!((out[0] - 15.0 / 16.0 * 4.0).abs() < 1e-6, "{}", out[0]);
        assert!((out[1] + 1.0 / 16.0 * 4.0).abs() < 1e-6, "{}", out[1]);
    }
}

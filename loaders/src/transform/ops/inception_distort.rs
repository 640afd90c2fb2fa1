//! `inception_distort`: the colours of TensorFlow's Inception training (`distort_color` of research/inception):
//! brightness U[-32, 32) of 255, saturation x U[0.5, 1.5), hue turned by U[-0.2, 0.2) of a circle, contrast
//! x U[0.5, 1.5) about each channel's mean, then clipped to 0 to 255.
//!
//! TensorFlow chooses between two orders by the number of its thread; here a draw chooses: brightness,
//! saturation, hue, contrast, or brightness, contrast, saturation, hue. Its crop is `inception_crop`.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{no_arguments, only_rgb};
use crate::transform::canvas::Canvas;
use crate::transform::moments::mean;
use crate::transform::op::{Context, Transform};
use crate::transform::planes::rgb;

#[derive(Debug)]
struct InceptionDistort;

pub(super) fn build(arguments: &[f64], context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    no_arguments(arguments)?;
    only_rgb(context.input)?;
    Ok(Box::new(InceptionDistort))
}

impl Transform for InceptionDistort {
    /// Draws the order, then brightness, saturation, hue and contrast.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let contrast_last = draws.below(2) == 0;
        let delta = draws.range(-32.0, 32.0);
        let [saturation_factor, turn, contrast_factor] =
            [(0.5, 1.5), (-0.2, 0.2), (0.5, 1.5)].map(|(low, high)| draws.range(low, high));
        let values = image.floats();
        for value in values.iter_mut() {
            *value += delta;
        }
        if !contrast_last {
            contrast(values, contrast_factor);
        }
        colours(values, saturation_factor, turn);
        if contrast_last {
            contrast(values, contrast_factor);
        }
        for value in values {
            *value = value.clamp(0.0, 255.0);
        }
    }
}

fn contrast(values: &mut [f32], factor: f32) {
    for plane in rgb(values) {
        let mean = mean(plane) as f32;
        for value in plane {
            *value = (*value - mean) * factor + mean;
        }
    }
}

/// Saturation, then hue, of every pixel; without branches, so that the compiler can vectorise it.
fn colours(values: &mut [f32], factor: f32, turn: f32) {
    let sixths = 6.0 * turn;
    let [red, green, blue] = rgb(values);
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let [x, y, z] = saturate([*r, *g, *b], factor);
        [*r, *g, *b] = turn_hue([x, y, z], sixths);
    }
}

/// Multiplies S of HSV by `factor`, at most up to 1 (`tf.image.adjust_saturation`). V and the hue stay, so
/// each channel's distance from V is multiplied by one number. Where V is not positive TensorFlow counts
/// S as 0: all channels become V.
#[inline]
fn saturate([r, g, b]: [f32; 3], factor: f32) -> [f32; 3] {
    let most = r.max(g).max(b);
    let range = most - r.min(g).min(b);
    let full = most.max(0.0) / if range > 0.0 { range } else { 1.0 };
    let scale = if full < factor { full } else { factor };
    [r, g, b].map(|x| most - (most - x) * scale)
}

/// Adds `sixths` (-6 to 6) of a circle to the hue; the greatest and the least of the channels stay
/// (`tf.image.adjust_hue`).
#[inline]
fn turn_hue([r, g, b]: [f32; 3], sixths: f32) -> [f32; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    let inverse = 1.0 / if range > 0.0 { range } else { 1.0 };
    let beside_red = if most == g { 2.0 + (b - r) * inverse } else { 4.0 + (r - g) * inverse };
    let hue = if most == r { (g - b) * inverse } else { beside_red } + sixths;
    let hue = hue + if hue < 0.0 { 6.0 } else { 0.0 };
    let hue = hue - if hue >= 6.0 { 6.0 } else { 0.0 };
    // Each channel over the circle: at the top for two sixths, at the bottom for two, slopes between.
    let ramp = |x: f32| least + range * x.clamp(0.0, 1.0);
    [ramp((hue - 3.0).abs() - 1.0), ramp(2.0 - (hue - 2.0).abs()), ramp(2.0 - (hue - 4.0).abs())]
}

impl fmt::Display for InceptionDistort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("inception_distort")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(got: [f32; 3], expected: [f32; 3]) {
        assert!(got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-4), "{got:?}, expected {expected:?}");
    }

    #[test]
    fn hue_goes_round() {
        let orange = [200.0, 100.0, 50.0];
        assert_near(turn_hue(orange, 2.0), [50.0, 200.0, 100.0]);
        assert_near(turn_hue(orange, -2.0), [100.0, 50.0, 200.0]);
        assert_near(turn_hue(orange, 6.0), orange);
        assert_near(turn_hue([7.0; 3], 1.3), [7.0; 3]);
    }

    #[test]
    fn saturation_ends_at_full() {
        assert_near(saturate([200.0, 100.0, 50.0], 0.5), [200.0, 150.0, 125.0]);
        // S = 0.75, times 1.5 above 1: the least channel becomes 0.
        assert_near(saturate([200.0, 100.0, 50.0], 1.5), [200.0, 200.0 - 100.0 / 0.75, 0.0]);
        assert_near(saturate([-5.0, -9.0, -7.0], 1.2), [-5.0; 3]);
        assert_near(saturate([0.0; 3], 1.2), [0.0; 3]);
    }
}

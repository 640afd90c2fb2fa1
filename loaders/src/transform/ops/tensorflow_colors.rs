//! Colour changes of TensorFlow's training scripts for CIFAR-10 and Inception.

use crate::random::Draws;
use crate::transform::call::{exactly, no_arguments, only_rgb};
use crate::transform::canvas::Canvas;
use crate::transform::geometry::rgb;
use crate::transform::op::{Context, Transform};
use crate::transform::ops::normalize::mean;

/// `brightness(d)`: adds one number from U[-d, d) to all values, which are on the scale 0 to 255. Does not clip. This
/// is `tf.image.random_brightness` on floats. The CIFAR tutorial uses d = 63.
#[derive(Debug)]
struct Brightness {
    max_delta: f32,
    /// For each band, 1/255 of its range: 1 for bytes.
    units: Vec<f32>,
}

pub(super) fn build_brightness(arguments: &[f64], context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    match exactly(arguments)? {
        [max_delta] if max_delta >= 0.0 => {
            let ranges = context.statistics.range()?;
            let units = ranges.into_iter().map(|(min, max)| ((max - min) / 255.0) as f32).collect();
            Ok(Box::new(Brightness { max_delta: max_delta as f32, units }))
        }
        [max_delta] => Err(format!("expected a max_delta of at least 0, got {max_delta}")),
    }
}

impl Transform for Brightness {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let delta = draws.range(-self.max_delta, self.max_delta);
        image.map_values(|channel| {
            let delta = delta * self.units[channel];
            move |value| value + delta
        });
    }

    fn text(&self) -> String {
        format!("brightness({})", self.max_delta)
    }
}

/// `contrast(lower, upper)`: (x - m) * f + m, where m is the mean of each channel and f is drawn once from U[lower,
/// upper). Does not clip. This is `tf.image.random_contrast` on floats. The CIFAR tutorial uses 0.2 and 1.8.
#[derive(Debug)]
struct Contrast {
    lower: f32,
    upper: f32,
}

pub(super) fn build_contrast(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    match exactly(arguments)? {
        [lower, upper] if 0.0 <= lower && lower <= upper => {
            Ok(Box::new(Contrast { lower: lower as f32, upper: upper as f32 }))
        }
        [lower, upper] => Err(format!("expected 0 <= lower <= upper, got {lower} and {upper}")),
    }
}

impl Transform for Contrast {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let factor = draws.range(self.lower, self.upper);
        let pixels = image.spec().pixels().max(1);
        image.floats().chunks_exact_mut(pixels).for_each(|plane| stretch(plane, factor));
    }

    fn text(&self) -> String {
        format!("contrast({}, {})", self.lower, self.upper)
    }
}

/// Multiplies the distances from the mean by `factor`.
fn stretch(plane: &mut [f32], factor: f32) {
    let mean = mean(plane) as f32;
    for value in plane {
        *value = (*value - mean) * factor + mean;
    }
}

/// `cifar_distort`: the changes that TensorFlow's CIFAR-10 tutorial makes between crop and standardisation, as one
/// transform. Mirrors with probability 1/2, adds U[-63, 63) to the brightness, and multiplies the contrast by U[0.2,
/// 1.8).
///
/// It equals `flip`, `brightness(63)`, `contrast(0.2, 1.8)` except for the random draws, but needs only two passes over
/// the values.
#[derive(Debug)]
struct CifarDistort;

pub(super) fn build_cifar_distort(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    no_arguments(arguments)?;
    Ok(Box::new(CifarDistort))
}

impl Transform for CifarDistort {
    fn needs_byte_scale(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.unit() < 0.5 {
            image.flip_horizontally();
        }
        let delta = draws.range(-63.0, 63.0);
        let factor = draws.range(0.2, 1.8);
        let pixels = image.spec().pixels().max(1);
        for plane in image.floats().chunks_exact_mut(pixels) {
            // Adding delta moves the mean too, so the distances from the mean do not change.
            let mean = mean(plane) as f32;
            for value in plane {
                *value = (*value - mean) * factor + (mean + delta);
            }
        }
    }

    fn text(&self) -> String {
        "cifar_distort".to_owned()
    }
}

/// `inception_distort`: the colour changes of TensorFlow's Inception training (`distort_color` of research/inception).
/// Adds U[-32, 32) of 255 to the brightness, multiplies the saturation by U[0.5, 1.5), changes the hue by U[-0.2, 0.2)
/// of a circle, multiplies the contrast by U[0.5, 1.5) about each channel's mean, and clips to 0 to 255.
///
/// TensorFlow chooses between two orders by thread number. Here the order is drawn: brightness, saturation, hue,
/// contrast, or brightness, contrast, saturation, hue. The matching crop is `inception_crop`.
#[derive(Debug)]
struct InceptionDistort;

pub(super) fn build_inception_distort(arguments: &[f64], context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    no_arguments(arguments)?;
    only_rgb(context.input)?;
    Ok(Box::new(InceptionDistort))
}

impl Transform for InceptionDistort {
    fn needs_byte_scale(&self) -> bool {
        true
    }

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
        let contrast = |values: &mut [f32]| rgb(values).into_iter().for_each(|plane| stretch(plane, contrast_factor));
        if !contrast_last {
            contrast(values);
        }
        colours(values, saturation_factor, turn);
        if contrast_last {
            contrast(values);
        }
        for value in values {
            *value = value.clamp(0.0, 255.0);
        }
    }

    fn text(&self) -> String {
        "inception_distort".to_owned()
    }
}

/// Changes the saturation and then the hue of every pixel. Has no branches, so that the compiler can vectorise it.
fn colours(values: &mut [f32], factor: f32, turn: f32) {
    let sixths = 6.0 * turn;
    let [red, green, blue] = rgb(values);
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let [x, y, z] = saturate([*r, *g, *b], factor);
        [*r, *g, *b] = turn_hue([x, y, z], sixths);
    }
}

/// Multiplies S of HSV by `factor`, up to at most 1 (`tf.image.adjust_saturation`). V and the hue do not change, so
/// each channel's distance from V is multiplied by the same number. If V is not positive, TensorFlow sets S to 0, and
/// all channels become V.
#[inline]
fn saturate([r, g, b]: [f32; 3], factor: f32) -> [f32; 3] {
    let most = r.max(g).max(b);
    let range = most - r.min(g).min(b);
    let full = most.max(0.0) / if range > 0.0 { range } else { 1.0 };
    let scale = if full < factor { full } else { factor };
    [r, g, b].map(|x| most - (most - x) * scale)
}

/// Adds `sixths` (-6 to 6) of a circle to the hue. The largest and the smallest channel values do not change
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
    // Over the circle, each channel is at its maximum for two sixths, at its minimum for two sixths, and has slopes
    // between.
    let ramp = |x: f32| least + range * x.clamp(0.0, 1.0);
    [ramp((hue - 3.0).abs() - 1.0), ramp(2.0 - (hue - 2.0).abs()), ramp(2.0 - (hue - 4.0).abs())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::{draws, run};

    #[test]
    fn brightness_adds_one_delta_without_clipping() {
        let spec = ImageSpec::new(1, 2, 1);
        let (mut least, mut most) = (f32::MAX, f32::MIN);
        for id in 0..1000 {
            let delta = draws(id).unit() * 126.0 - 63.0;
            let out = run("brightness(63)", spec, &[0, 255], id);
            assert!((out[0] - delta).abs() < 1e-4 && (out[1] - 255.0 - delta).abs() < 1e-4);
            (least, most) = (least.min(out[0]), most.max(out[0]));
        }
        assert!((-63.0..-60.0).contains(&least) && (60.0..63.0).contains(&most));
    }

    #[test]
    fn contrast_scales_each_channel_around_its_mean() {
        // The channels (10, 30) and (100, 220) have means 20 and 160.
        let spec = ImageSpec::new(1, 2, 2);
        let bytes = [10, 100, 30, 220];
        assert_eq!(run("contrast(2, 2)", spec, &bytes, 0), [0.0, 40.0, 40.0, 280.0]);
        for id in 0..100 {
            let factor = 0.2 + 1.6 * draws(id).unit();
            let out = run("contrast(0.2, 1.8)", spec, &bytes, id);
            for (got, (mean, distance)) in out.iter().zip([(20.0, -10.0), (20.0, 10.0), (160.0, -60.0), (160.0, 60.0)])
            {
                assert!((got - (mean + distance * factor)).abs() < 1e-3);
            }
        }
    }

    #[track_caller]
    fn assert_near(got: [f32; 3], expected: [f32; 3]) {
        assert!(got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-4), "{got:?}, expected {expected:?}");
    }

    #[test]
    fn turn_hue_rotates_by_a_full_circle_of_six() {
        let orange = [200.0, 100.0, 50.0];
        assert_near(turn_hue(orange, 2.0), [50.0, 200.0, 100.0]);
        assert_near(turn_hue(orange, -2.0), [100.0, 50.0, 200.0]);
        assert_near(turn_hue(orange, 6.0), orange);
        assert_near(turn_hue([7.0; 3], 1.3), [7.0; 3]);
    }

    #[test]
    fn saturate_stops_at_full_saturation() {
        assert_near(saturate([200.0, 100.0, 50.0], 0.5), [200.0, 150.0, 125.0]);
        // S = 0.75 times 1.5 is above 1, so the smallest channel becomes 0.
        assert_near(saturate([200.0, 100.0, 50.0], 1.5), [200.0, 200.0 - 100.0 / 0.75, 0.0]);
        assert_near(saturate([-5.0, -9.0, -7.0], 1.2), [-5.0; 3]);
        assert_near(saturate([0.0; 3], 1.2), [0.0; 3]);
    }
}

//! Colour changes of the PyTorch recipes: `color_jitter`, and AlexNet's `lighting`.

use crate::random::Draws;
use crate::transform::bytes::{blend, grey, one_if, rest, select, whole};
use crate::transform::call::{exactly, only_rgb};
use crate::transform::canvas::Canvas;
use crate::transform::geometry::rgb;
use crate::transform::op::{Context, Transform};
use crate::transform::ops::normalize::mean;

/// `color_jitter(b, c, s, h)`: multiplies brightness, contrast and saturation by factors from U[max(0, 1 - x), 1 + x),
/// where x is b, c or s, and shifts the hue by U[-h, h) of a full circle, in random order. This is torchvision's
/// `ColorJitter`.
///
/// torchvision has two implementations. This one is for byte tensors: after each step, values are clamped to 0 to 255
/// and truncated to integers, and the hue is computed in floats (the PIL version rounds the hue to 8 bits). The results
/// are bit-identical to torchvision's on CPUs with fused multiply-add, which torchvision's kernels use.
#[derive(Debug)]
struct ColorJitter {
    /// Maximum distance from 1 of the factors for brightness, contrast and saturation.
    reach: [f64; 3],
    /// Maximum change of the hue, as a fraction of the circle.
    hue: f64,
}

pub(super) fn build_color_jitter(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let [brightness, contrast, saturation, hue] = exactly(arguments)?;
    if let Some(bad) = [brightness, contrast, saturation].iter().find(|x| **x < 0.0) {
        return Err(format!("expected brightness, contrast and saturation of at least 0, got {bad}"));
    }
    if !(0.0..=0.5).contains(&hue) {
        return Err(format!("expected a hue from 0 to 0.5, got {hue}"));
    }
    Ok(Box::new(ColorJitter { reach: [brightness, contrast, saturation], hue }))
}

impl Transform for ColorJitter {
    fn needs_byte_scale(&self) -> bool {
        true
    }

    /// Draws the order with three swaps, then all four numbers, even those that are not used.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let mut order = [0, 1, 2, 3];
        for last in (1..4).rev() {
            order.swap(last, draws.below(last as u32 + 1) as usize);
        }
        let factors = self.reach.map(|reach| draws.range((1.0 - reach).max(0.0) as f32, (1.0 + reach) as f32));
        let turn = draws.range(-self.hue as f32, self.hue as f32);
        let is_color = image.spec().channels == 3;
        let values = image.floats();
        // Values have fractions only after a resize. They are rounded here, as torchvision's resize does.
        for value in values.iter_mut() {
            *value = whole(*value + 0.5);
        }
        for step in order {
            match step {
                0 if self.reach[0] > 0.0 => brightness(values, factors[0]),
                1 if self.reach[1] > 0.0 => contrast(values, is_color, factors[1]),
                2 if self.reach[2] > 0.0 && is_color => saturation(values, factors[2]),
                3 if self.hue > 0.0 && is_color => hue(values, turn),
                _ => {}
            }
        }
    }

    fn text(&self) -> String {
        let [brightness, contrast, saturation] = self.reach;
        format!("color_jitter({brightness}, {contrast}, {saturation}, {})", self.hue)
    }
}

fn brightness(values: &mut [f32], factor: f32) {
    for value in values {
        *value = whole(factor * *value);
    }
}

/// Blends with the mean grey value: `factor` times the image plus `1 - factor` times the mean.
fn contrast(values: &mut [f32], is_color: bool, factor: f32) {
    let mean = if is_color {
        let [red, green, blue] = rgb(values);
        let pixels = red.iter().zip(green.iter()).zip(blue.iter());
        // These are integers up to 255, so their sum is exact.
        let sum: u64 = pixels.map(|((&r, &g), &b)| u64::from(grey(r, g, b) as u8)).sum();
        (sum as f64 / red.len().max(1) as f64) as f32
    } else {
        mean(values) as f32
    };
    let rest = rest(factor);
    for value in values {
        *value = whole(blend(factor, *value, rest, mean));
    }
}

fn saturation(values: &mut [f32], factor: f32) {
    let rest = rest(factor);
    let [red, green, blue] = rgb(values);
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let grey = grey(*r, *g, *b);
        *r = whole(blend(factor, *r, rest, grey));
        *g = whole(blend(factor, *g, rest, grey));
        *b = whole(blend(factor, *b, rest, grey));
    }
}

/// Adds `turn` to the hue in HSV. Has no branches, so that the compiler can vectorise it.
fn hue(values: &mut [f32], turn: f32) {
    let [red, green, blue] = rgb(values);
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let (hue, saturation, value) = to_hsv(*r / 255.0, *g / 255.0, *b / 255.0);
        let turned = hue + turn;
        let turned = turned + one_if(turned < 0.0);
        let turned = turned - one_if(turned >= 1.0);
        // torchvision scales from [0, 1] to bytes with 255.999.
        let bytes = to_rgb(turned, saturation, value).map(|x| whole(x * 255.999));
        (*r, *g, *b) = (bytes[0], bytes[1], bytes[2]);
    }
}

#[inline]
fn to_hsv(r: f32, g: f32, b: f32) -> (f32, f32, f32) {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    let is_grey = range == 0.0;
    let saturation = range / select(is_grey, 1.0, most);
    let divisor = select(is_grey, 1.0, range);
    let (rc, gc, bc) = ((most - r) / divisor, (most - g) / divisor, (most - b) / divisor);
    let beside_red = select(most == g, rc + 2.0 - bc, gc + 4.0 - rc);
    let sixths = select(most == r, bc - gc, beside_red);
    let hue = sixths * (1.0 / 6.0) + 1.0;
    (hue - one_if(hue >= 1.0), saturation, most)
}

#[inline]
fn to_rgb(hue: f32, saturation: f32, value: f32) -> [f32; 3] {
    let sixths = hue * 6.0;
    // Rounds down a number from 0 to 6 by counting. Rounding errors can produce 6, which means 0.
    let sector = one_if(sixths >= 1.0)
        + one_if(sixths >= 2.0)
        + one_if(sixths >= 3.0)
        + one_if(sixths >= 4.0)
        + one_if(sixths >= 5.0)
        + one_if(sixths >= 6.0);
    let part = saturation * (sixths - sector);
    let rest = 1.0 - saturation;
    let falling = (1.0 - part) * value;
    let rising = (part + rest) * value;
    let low = rest * value;
    let is = |k: f32| sector == k;
    let pick =
        |top: bool, falls: bool, rises: bool| select(top, value, select(falls, falling, select(rises, rising, low)));
    [
        pick(is(0.0) | is(5.0) | is(6.0), is(1.0), is(4.0)),
        pick(is(1.0) | is(2.0), is(3.0), is(0.0) | is(6.0)),
        pick(is(3.0) | is(4.0), is(5.0), is(2.0)),
    ]
}

// `lighting(std)`: adds E (a * l) to every pixel. E and l are the eigenvectors and eigenvalues of the colours of
// ImageNet, and a is three numbers from N(0, std^2) that are drawn for each image (Krizhevsky et al. 2012, section 4.1,
// with std 0.1). The result is not clipped.

/// Square roots of the eigenvalues of the RGB covariance over ImageNet, for values from 0 to 1.
const EIGENVALUES: [f64; 3] = [0.2175, 0.0188, 0.0045];
/// The eigenvectors are the columns. The rows are red, green and blue.
const EIGENVECTORS: [[f64; 3]; 3] =
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]];

#[derive(Debug)]
struct Lighting {
    std: f64,
}

pub(super) fn build_lighting(arguments: &[f64], context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let [std] = exactly(arguments)?;
    if std < 0.0 {
        return Err(format!("expected a std of at least 0, got {std}"));
    }
    only_rgb(context.input)?;
    Ok(Box::new(Lighting { std }))
}

impl Transform for Lighting {
    fn needs_byte_scale(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ((a, b), (c, _)) = (draws.normals(), draws.normals());
        let alpha = [a, b, c].map(|z| f64::from(z) * self.std);
        for (plane, row) in rgb(image.floats()).into_iter().zip(EIGENVECTORS) {
            let shift: f64 = (0..3).map(|k| row[k] * alpha[k] * EIGENVALUES[k]).sum();
            let shift = (255.0 * shift) as f32;
            for value in plane {
                *value += shift;
            }
        }
    }

    fn text(&self) -> String {
        format!("lighting({})", self.std)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn color_jitter_of_zero_changes_nothing() {
        let bytes: Vec<u8> = (0..=254).collect();
        let spec = ImageSpec::new(5, 17, 3);
        let out = run("color_jitter(0, 0, 0, 0)", spec, &bytes, 3);
        for (i, value) in out.iter().enumerate() {
            assert_eq!(*value, f32::from(bytes[i % 85 * 3 + i / 85]));
        }
    }

    #[test]
    fn a_full_turn_of_hue_restores_every_colour() {
        let mut values: Vec<f32> = (0..3000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32).collect();
        let before = values.clone();
        for _ in 0..2 {
            hue(&mut values, 0.5);
        }
        for (a, b) in values.iter().zip(&before) {
            assert!((a - b).abs() <= 1.0, "{a} {b}");
        }
        hue(&mut values, 1.0 / 3.0);
        // After a third of a circle, red becomes green, up to the truncation of three conversions.
        for (i, (was_red, is_green)) in before[..1000].iter().zip(&values[1000..2000]).enumerate() {
            assert!((was_red - is_green).abs() <= 2.0, "pixel {i}: {was_red} {is_green}");
        }
    }

    #[test]
    fn color_jitter_of_grey_images_ignores_saturation_and_hue() {
        let spec = ImageSpec::new(1, 2, 1);
        for id in 0..50 {
            assert_eq!(run("color_jitter(0, 0, 1, 0.5)", spec, &[10, 200], id), [10.0, 200.0]);
            let out = run("color_jitter(0.9, 0.9, 0, 0)", spec, &[10, 200], id);
            assert!(out.iter().all(|x| (0.0..=255.0).contains(x) && x.fract() == 0.0), "{out:?}");
        }
    }

    #[test]
    fn lighting_has_the_covariance_of_the_eigenvectors() {
        let n = 20_000;
        let mut sums = [[0.0; 3]; 3];
        for id in 0..n {
            let out = run("lighting(0.1)", ImageSpec::new(1, 1, 3), &[100; 3], id);
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum += f64::from((out[i] - 100.0) * (out[j] - 100.0));
                }
            }
        }
        for i in 0..3 {
            for j in 0..3 {
                let terms = (0..3).map(|k| EIGENVECTORS[i][k] * EIGENVECTORS[j][k] * (25.5 * EIGENVALUES[k]).powi(2));
                let expected: f64 = terms.sum();
                // The values are about 10 each, with a standard error of 1 %.
                assert!((sums[i][j] / n as f64 - expected).abs() < 0.5, "{i} {j}");
            }
        }
    }
}

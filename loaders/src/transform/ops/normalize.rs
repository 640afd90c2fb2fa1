//! Transforms that normalise pixel values to zero mean and unit variance, and functions for the mean and variance of
//! floats.

use crate::random::Draws;
use crate::transform::call::no_arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Transform};
use crate::transform::paint::Scale;
use crate::transform::statistics::Statistics;

/// `normalize`: (x / 255 - mean) / std per channel for bytes, otherwise (x - mean) / std, in f32 as in torchvision.
/// Without arguments, it uses the data set's mean and std.
/// `normalize(m, s)` uses one pair for all channels, and 2*C arguments are C means followed by C stds.
#[derive(Debug)]
struct Normalize {
    /// `mean` and `std` have an entry per channel, or a single entry for all channels.
    mean: Vec<f64>,
    std: Vec<f64>,
    /// Lookup tables for bytes, one per entry of `mean`. Empty if the values are not bytes on the scale 0 to 255.
    scales: Vec<Scale>,
}

pub(super) fn build_normalize(arguments: &[f64], context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let channels = context.input.channels as usize;
    let Statistics { mean, std, are_bytes, .. } = context.statistics;
    let (mean, std) = match arguments.len() {
        0 if mean.len() == channels => (&mean[..], &std[..]),
        // The data set has grey files, but its mean and std were measured as RGB.
        0 if channels == 1 && is_grey(mean) && is_grey(std) => (&mean[..1], &std[..1]),
        0 if let Some(transform) = context.statistics.forgotten => {
            return Err(format!(
                "the mean and std of dataset.json do not hold after {transform}; write normalize with your own numbers, or standardize"
            ));
        }
        0 if channels == 1 && mean.len() == 3 => {
            return Err(
                "`mean` and `std` in dataset.json are of images with colours, but the first images are grey; begin \
                        augment.train and augment.eval with \"rgb\""
                    .into(),
            );
        }
        0 => {
            return Err(format!(
                "the number of values of `mean` and `std` in dataset.json is {}, but the number of channels of the image is {channels} \
                 (`trireme data stats DIR --write` measures and stores `mean` and `std`)",
                mean.len()
            ));
        }
        n if n == 2 || n == 2 * channels => arguments.split_at(n / 2),
        n => {
            let expected = if channels == 1 { "0 or 2".into() } else { format!("0, 2 or {}", 2 * channels) };
            return Err(format!("expected {expected} arguments, got {n}"));
        }
    };
    if let Some((channel, bad)) = std.iter().enumerate().find(|(_, std)| **std <= 0.0) {
        return Err(match arguments.is_empty() && *bad == 0.0 {
            true => format!(
                "dataset.json has std 0 for band {}: it is constant in all measured images; write \
                 normalize(mean, std) with your own numbers, such as normalize(0.5, 0.25)",
                channel + 1
            ),
            false => format!("expected a std above 0, got {bad}"),
        });
    }
    let scale = |(&mean, &std): (&f64, &f64)| {
        let table = std::array::from_fn(|byte| scaled(byte as f64, mean, std));
        Scale::new(table, 1.0 / (255.0 * std), -mean / std)
    };
    let scales = mean.iter().zip(std).map(scale).filter(|_| *are_bytes).collect();
    Ok(Box::new(Normalize { mean: mean.to_vec(), std: std.to_vec(), scales }))
}

/// Normalises a value. Computes in f64 and rounds once, so that the table and the arithmetic agree exactly.
fn scaled(value: f64, mean: f64, std: f64) -> f32 {
    ((value / 255.0 - mean) / std) as f32
}

/// Returns true if the values for the three channels are equal.
fn is_grey(numbers: &[f64]) -> bool {
    matches!(numbers, [red, green, blue] if red == green && green == blue)
}

impl Transform for Normalize {
    fn rescales(&self) -> bool {
        true
    }

    fn tables(&self, channels: usize) -> Option<Vec<[f32; 256]>> {
        (!self.scales.is_empty())
            .then(|| (0..channels).map(|channel| self.scales[channel % self.scales.len()].table).collect())
    }

    fn mean_and_deviation(&self, channels: usize) -> Option<Vec<[f32; 2]>> {
        let n = self.mean.len();
        let pair = |channel: usize| [self.mean[channel % n], self.std[channel % n]].map(|number| number as f32);
        self.scales.is_empty().then(|| (0..channels).map(pair).collect())
    }

    fn restate(&self, statistics: &mut Statistics) {
        let (n, unit) = (self.mean.len(), if statistics.are_bytes { 255.0 } else { 1.0 });
        statistics.scale(|channel| (self.mean[channel % n] * unit, self.std[channel % n] * unit));
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let n = self.mean.len();
        let numbers = |channel: usize| (self.mean[channel % n], self.std[channel % n]);
        if self.scales.is_empty() {
            return image.map_values(|channel| {
                let (mean, std) = numbers(channel);
                let (mean, std) = (mean as f32, std as f32);
                move |value| (value - mean) / std
            });
        }
        image.map(&self.scales, |channel| {
            let (mean, std) = numbers(channel);
            move |value| scaled(f64::from(value), mean, std)
        });
    }

    fn text(&self) -> String {
        let numbers: Vec<String> = self.mean.iter().chain(&self.std).map(f64::to_string).collect();
        format!("normalize({})", numbers.join(", "))
    }
}

/// `standardize`: (x - mean) / max(std, 1 / sqrt(H*W*C)). The mean and the population std are over all pixels and
/// channels of the image. This is `tf.image.per_image_standardization`.
#[derive(Debug)]
struct Standardize;

pub(super) fn build_standardize(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    no_arguments(arguments)?;
    Ok(Box::new(Standardize))
}

impl Transform for Standardize {
    fn rescales(&self) -> bool {
        true
    }

    fn restate(&self, statistics: &mut Statistics) {
        statistics.forget_all("standardize");
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

    fn text(&self) -> String {
        "standardize".to_owned()
    }
}

/// Number of independent partial sums, so that additions do not wait for each other.
const LANES: usize = 8;

/// Returns the mean, or 0 if there are no values.
pub(super) fn mean(values: &[f32]) -> f64 {
    sum(values, |x| x) / (values.len().max(1)) as f64
}

/// Returns the mean square distance from `mean` (population variance), or 0 if there are no values.
pub(super) fn variance(values: &[f32], mean: f64) -> f64 {
    sum(values, |x| (x - mean) * (x - mean)) / (values.len().max(1)) as f64
}

fn sum(values: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += term(f64::from(value));
        }
    }
    let rest: f64 = rest.iter().map(|&value| term(f64::from(value))).sum();
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::manifest::Manifest;
    use crate::mentions::assert_mentions;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn standardize_uses_mean_and_std_of_all_channels() {
        // The values 2, 4, 4, 4, 5, 5, 7, 9 have mean 5 and population std 2.
        let spec = ImageSpec::new(2, 2, 2);
        let out = run("standardize", spec, &[2, 5, 4, 5, 4, 7, 4, 9], 0);
        assert_eq!(out, [-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn standardize_limits_the_std_of_flat_images() {
        let spec = ImageSpec::new(2, 2, 1);
        assert_eq!(run("standardize", spec, &[9; 4], 0), [0.0; 4]);
        // Fifteen values are 7 and the first is 8. Their std is sqrt(15)/16 = 0.242, below the minimum of 1/4.
        let mut bytes = [7; 16];
        bytes[0] = 8;
        let out = run("standardize", ImageSpec::new(4, 4, 1), &bytes, 0);
        assert!((out[0] - 15.0 / 16.0 * 4.0).abs() < 1e-6, "{}", out[0]);
        assert!((out[1] + 1.0 / 16.0 * 4.0).abs() < 1e-6, "{}", out[1]);
    }

    #[test]
    fn normalize_uses_mean_and_std_of_the_data_set() {
        // The means are 0.5, 0.25, 0.125 and the stds 0.5, 0.25, 2.
        let out = run("normalize", ImageSpec::new(1, 2, 3), &[0, 0, 0, 255, 255, 255], 0);
        assert_eq!(out, [-1.0, 1.0, -1.0, 3.0, -0.0625, 0.4375]);
    }

    #[test]
    fn a_grey_first_image_of_a_coloured_data_set_has_advice() {
        let manifest = Manifest { mean: vec![0.5, 0.4, 0.3], std: vec![0.5; 3], ..Manifest::default() };
        let context = Context { input: ImageSpec::new(1, 1, 1), statistics: &Statistics::new(&manifest, 3, false) };
        assert_mentions(&build_normalize(&[], context).err().unwrap(), &["augment.train", "\"rgb\""]);
    }

    #[test]
    fn a_constant_channel_of_the_data_set_is_named() {
        let manifest = Manifest { mean: vec![0.5; 3], std: vec![0.5, 0.0, 0.0], ..Manifest::default() };
        let context = Context { input: ImageSpec::new(1, 1, 3), statistics: &Statistics::new(&manifest, 3, false) };
        let text = build_normalize(&[], context).err().unwrap();
        assert_mentions(&text, &["dataset.json", "std 0", "band 2", "normalize(0.5, 0.25)"]);
        let text = build_normalize(&[0.5, 0.0], context).err().unwrap();
        assert!(text.contains("above 0") && !text.contains("dataset.json"), "{text}");
    }

    #[test]
    fn normalize_uses_the_given_numbers() {
        let one = ImageSpec::new(1, 2, 1);
        assert_eq!(run("normalize(0.5, 0.5)", one, &[0, 255], 0), [-1.0, 1.0]);
        let two = ImageSpec::new(1, 1, 2);
        assert_eq!(run("normalize(0.5, 0.25)", two, &[0, 255], 0), [-2.0, 2.0]);
        assert_eq!(run("normalize(0, 1, 0.5, 4)", two, &[255, 255], 0), [2.0, 0.0]);
        let third = (51.0f64 / 255.0 - 0.4914) / 0.247;
        assert_eq!(run("normalize(0.4914, 0.247)", one, &[51, 0], 0)[0], third as f32);
    }

    #[test]
    fn mean_and_variance_of_one_to_eleven() {
        let values: Vec<f32> = (1..=11).map(|i| i as f32).collect();
        assert_eq!(mean(&values), 6.0);
        assert_eq!(variance(&values, 6.0), 10.0);
        assert_eq!(mean(&[]), 0.0);
    }
}

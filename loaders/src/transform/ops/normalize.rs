//! `normalize`: (x / 255 - mean) / std per channel. Without arguments mean and std are the data set's;
//! `normalize(m, s)` uses one pair for all channels, and 2*C arguments are C means, then C stds.

use std::fmt;

use crate::random::Draws;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Transform};
use crate::transform::scale::Scale;

#[derive(Debug)]
struct Normalize {
    /// One for all channels, or one each; as many as there are scales.
    mean: Vec<f64>,
    std: Vec<f64>,
    scales: Vec<Scale>,
}

pub(super) fn build(arguments: &[f64], context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let channels = context.input.channels as usize;
    let (mean, std) = match arguments.len() {
        0 if context.mean.len() == channels => (context.mean, context.std),
        // grey files, measured as RGB
        0 if channels == 1 && is_grey(context.mean) && is_grey(context.std) => (&context.mean[..1], &context.std[..1]),
        0 => {
            return Err(format!(
                "dataset.json has {} values of `mean` and `std`, the image has {channels} channels \
                 (`trireme data stats` measures them)",
                context.mean.len()
            ));
        }
        n if n == 2 || n == 2 * channels => arguments.split_at(n / 2),
        n => {
            return Err(format!("expected 0, 2 or {} arguments, got {n}", 2 * channels));
        }
    };
    if let Some((channel, bad)) = std.iter().enumerate().find(|(_, std)| **std <= 0.0) {
        return Err(match arguments.is_empty() && *bad == 0.0 {
            true => format!(
                "dataset.json has std 0 for channel {channel}: it is constant in all images that were measured; write \
                 normalize(mean, std) with numbers of your own, such as normalize(0.5, 0.25)"
            ),
            false => format!("expected a std above 0, got {bad}"),
        });
    }
    let scale = |(&mean, &std): (&f64, &f64)| {
        let table = std::array::from_fn(|byte| scaled(byte as f64, mean, std));
        Scale::new(table, 1.0 / (255.0 * std), -mean / std)
    };
    let scales = mean.iter().zip(std).map(scale).collect();
    Ok(Box::new(Normalize { mean: mean.to_vec(), std: std.to_vec(), scales }))
}

/// In f64, rounded once: table and arithmetic agree to the bit.
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
        Some((0..channels).map(|channel| self.scales[channel % self.scales.len()].table).collect())
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let n = self.mean.len();
        image.map(&self.scales, |channel, value| {
            scaled(f64::from(value), self.mean[channel % n], self.std[channel % n])
        });
    }
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("normalize(")?;
        for (i, number) in self.mean.iter().chain(&self.std).enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{number}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn by_the_data_sets_mean_and_std() {
        // Means 0.5, 0.25, 0.125 and stds 0.5, 0.25, 2.
        let out = run(build, "normalize", ImageSpec::new(1, 2, 3), &[0, 0, 0, 255, 255, 255], 0);
        assert_eq!(out, [-1.0, 1.0, -1.0, 3.0, -0.0625, 0.4375]);
    }

    #[test]
    fn a_constant_channel_of_the_data_set_is_named() {
        let context = Context { input: ImageSpec::new(1, 1, 3), mean: &[0.5; 3], std: &[0.5, 0.0, 0.0] };
        let text = "dataset.json has std 0 for channel 1: it is constant in all images that were measured; write normalize(mean, std) with \
                    numbers of your own, such as normalize(0.5, 0.25)";
        assert_eq!(build(&[], context).err().as_deref(), Some(text));
        assert_eq!(build(&[0.5, 0.0], context).err().as_deref(), Some("expected a std above 0, got 0"));
    }

    #[test]
    fn by_given_numbers() {
        let one = ImageSpec::new(1, 2, 1);
        assert_eq!(run(build, "normalize(0.5, 0.5)", one, &[0, 255], 0), [-1.0, 1.0]);
        let two = ImageSpec::new(1, 1, 2);
        assert_eq!(run(build, "normalize(0.5, 0.25)", two, &[0, 255], 0), [-2.0, 2.0]);
        assert_eq!(run(build, "normalize(0, 1, 0.5, 4)", two, &[255, 255], 0), [2.0, 0.0]);
        let third = (51.0f64 / 255.0 - 0.4914) / 0.247;
        assert_eq!(run(build, "normalize(0.4914, 0.247)", one, &[51, 0], 0)[0], third as f32);
    }
}

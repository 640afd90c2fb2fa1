//! `gamma` and `noise`. Both scale with each band's range. Bytes have the range 0 to 255. For other types, the range
//! extends from the smallest to the largest value in the training split.

use crate::random::Draws;
use crate::transform::call::exactly;
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};

/// `gamma(low, high)`: raises each value, as a fraction of its band's range, to a power from U[low, high). Values outside
/// the range are clipped. All bands have the same power.
#[derive(Debug)]
struct Gamma {
    low: f64,
    high: f64,
    ranges: Vec<(f64, f64)>,
}

pub(super) fn build_gamma(arguments: &[f64], context: Context<'_>) -> BuildResult {
    match exactly(arguments)? {
        [low, high] if 0.0 < low && low <= high => {
            Ok(Box::new(Gamma { low, high, ranges: context.statistics.range()? }))
        }
        [low, high] => Err(format!("expected 0 < low <= high, got {low} and {high}")),
    }
}

impl Transform for Gamma {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let power = f64::from(draws.range(self.low as f32, self.high as f32));
        image.map_values(|channel| {
            let (min, max) = self.ranges[channel];
            let range = if max > min { max - min } else { 1.0 };
            move |value| {
                let share = ((f64::from(value) - min) / range).clamp(0.0, 1.0);
                // libm's results are the same on every CPU.
                (min + range * libm::pow(share, power)) as f32
            }
        });
    }

    fn text(&self) -> String {
        format!("gamma({}, {})", self.low, self.high)
    }
}

/// `noise(std)`: adds N(0, std^2) to each value, on a scale where each band's range is 255.
#[derive(Debug)]
struct Noise {
    std: f64,
    /// The deviation in each band's units.
    deviations: Vec<f32>,
}

pub(super) fn build_noise(arguments: &[f64], context: Context<'_>) -> BuildResult {
    let [std] = exactly(arguments)?;
    if std < 0.0 {
        return Err(format!("expected a std of at least 0, got {std}"));
    }
    let ranges = context.statistics.range()?;
    let deviations = ranges.into_iter().map(|(min, max)| (std * (max - min) / 255.0) as f32).collect();
    Ok(Box::new(Noise { std, deviations }))
}

impl Transform for Noise {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let plane = image.shape().plane().max(1);
        for (values, deviation) in image.floats().chunks_exact_mut(plane).zip(&self.deviations) {
            for pair in values.chunks_mut(2) {
                let (first, second) = draws.normals();
                pair.iter_mut().zip([first, second]).for_each(|(value, normal)| *value += normal * deviation);
            }
        }
    }

    fn text(&self) -> String {
        format!("noise({})", self.std)
    }
}

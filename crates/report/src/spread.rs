//! How the elements of a tensor are spread.

use serde::Serialize;

/// Bins of equal width between the least and the most.
const BINS: usize = 40;

/// Statistics of a tensor. Elements that are no numbers make them NaN, which JSON has as null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, of the population.
    pub deviation: f64,
    /// The least element.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// Share of zeros.
    pub zeros: f64,
    /// Elements in each bin; for pictures alone.
    #[serde(skip)]
    pub bins: Vec<u64>,
}

impl Spread {
    /// Of these elements, each times `factor`; in f64 and in their order.
    pub fn of(elements: &[f32], factor: f64) -> Self {
        let values = || elements.iter().map(|element| f64::from(*element) * factor);
        let count = elements.len() as f64;
        let mean = values().sum::<f64>() / count;
        let deviation = (values().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        values().for_each(|value| (least, most) = (least.min(value), most.max(value)));
        let zeros = values().filter(|value| *value == 0.0).count() as f64 / count;
        let mut spread = Self { mean, deviation, least, most, zeros, bins: Vec::new() };
        if mean.is_finite() && !elements.is_empty() {
            let mut bins = vec![0; BINS];
            let scale = BINS as f64 / (most - least).max(f64::MIN_POSITIVE);
            values().for_each(|value| bins[(((value - least) * scale) as usize).min(BINS - 1)] += 1);
            spread.bins = bins;
        }
        spread
    }

    /// The upper edges of the bins.
    pub fn edges(&self) -> Vec<f64> {
        let width = (self.most - self.least) / BINS as f64;
        // edges must ascend, where all elements are equal, too
        let width = width.max(f64::EPSILON * self.most.abs()).max(f64::MIN_POSITIVE);
        (1..=self.bins.len()).map(|k| self.least + k as f64 * width).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_by_hand() {
        let spread = Spread::of(&[0.0, 2.0, -2.0, 0.0, 4.0, 2.0], 0.5);
        assert_eq!((spread.mean, spread.least, spread.most, spread.zeros), (0.5, -1.0, 2.0, 2.0 / 6.0));
        assert!((spread.deviation - (5.5f64 / 6.0).sqrt()).abs() < 1e-12, "{}", spread.deviation);
        assert_eq!((spread.bins[0], spread.bins[13], spread.bins[39], spread.bins.iter().sum::<u64>()), (1, 2, 1, 6));
        assert_eq!(spread.edges()[39], 2.0);
        let even = Spread::of(&[3.0; 5], 1.0);
        assert!(even.deviation == 0.0 && even.bins.iter().sum::<u64>() == 5 && even.edges().is_sorted());
        let lost = Spread::of(&[1.0, f32::NAN], 1.0);
        assert!(lost.mean.is_nan() && lost.bins.is_empty() && Spread::of(&[], 1.0).mean.is_nan());
    }
}

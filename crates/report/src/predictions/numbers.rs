//! Predicted numbers (regression) and their scores.

use serde::Serialize;

use super::chunk;

/// An image's numbers and their predictions, in the targets' units.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberOutcome {
    /// Index of the image in its split.
    pub id: u64,
    pub loss: f64,
    pub numbers: Vec<f32>,
    pub predicted: Vec<f32>,
}

impl NumberOutcome {
    /// Returns the prediction minus the number, for a target.
    pub fn residual(&self, target: usize) -> f64 {
        f64::from(self.predicted[target]) - f64::from(self.numbers[target])
    }

    /// Appends the binary form.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_le_bytes());
        out.extend(self.loss.to_le_bytes());
        self.numbers.iter().chain(&self.predicted).for_each(|value| out.extend(value.to_le_bytes()));
    }

    /// Reads outcomes with `targets` targets from their binary form.
    pub fn read(bytes: &[u8], targets: usize) -> Vec<Self> {
        let one = |mut bytes: &[u8]| {
            let (id, loss) = (u64::from_le_bytes(chunk(&mut bytes)?), f64::from_le_bytes(chunk(&mut bytes)?));
            let mut numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            let predicted = numbers.split_off(targets);
            Some(Self { id, loss, numbers, predicted })
        };
        bytes.chunks_exact(16 + 8 * targets).filter_map(one).collect()
    }
}

/// A target's scores, in its units.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TargetScore {
    pub name: String,
    /// Root mean squared error.
    pub rmse: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Coefficient of determination. NaN (null in JSON) if all numbers are equal.
    pub r2: f64,
}

/// Sums over a split's images, from which a target's scores are computed: the sums of e^2, |e|, d and d^2, in this
/// order. e is the prediction minus the number. d is the number minus a constant near the mean of the numbers, so that
/// the sum of squares loses no digits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorSums {
    pub squares: f64,
    pub absolute: f64,
    pub offsets: f64,
    pub squared_offsets: f64,
}

impl ErrorSums {
    /// Number of values in the flat form.
    pub const WIDTH: usize = 4;

    /// Adds an image.
    pub fn add(&mut self, number: f64, predicted: f64, near_mean: f64) {
        let (e, d) = (predicted - number, number - near_mean);
        self.squares += e * e;
        self.absolute += e.abs();
        self.offsets += d;
        self.squared_offsets += d * d;
    }

    /// Returns the sums as a list.
    pub fn to_flat(self) -> [f64; Self::WIDTH] {
        [self.squares, self.absolute, self.offsets, self.squared_offsets]
    }

    /// Returns the scores for `count` images.
    pub fn scores(
        [squares, absolute, offsets, squared_offsets]: [f64; Self::WIDTH],
        count: u64,
        name: &str,
    ) -> TargetScore {
        let n = count as f64;
        let spread = squared_offsets - offsets * offsets / n;
        // if all numbers are equal, rounding errors can make `spread` slightly larger than 0
        let r2 = if spread > 1e-12 * squared_offsets { 1.0 - squares / spread } else { f64::NAN };
        TargetScore { name: name.into(), rmse: (squares / n).sqrt(), mae: absolute / n, r2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(pairs: &[(f64, f64)], near_mean: f64) -> TargetScore {
        let mut sums = ErrorSums::default();
        pairs.iter().for_each(|(number, predicted)| sums.add(*number, *predicted, near_mean));
        ErrorSums::scores(sums.to_flat(), pairs.len() as u64, "x")
    }

    /// sklearn.metrics in scikit-learn 1.9.1: mean_squared_error ** 0.5, mean_absolute_error and r2_score for ([3,
    /// -0.5, 2, 7], [2.5, 0, 2, 8]) are 0.6123724356957945, 0.5 and 0.9486081370449679.
    #[test]
    fn rmse_mae_and_r2_match_scikit_learn() {
        let pairs = [(3.0, 2.5), (-0.5, 0.0), (2.0, 2.0), (7.0, 8.0)];
        for near_mean in [0.0, 3.0] {
            let TargetScore { rmse, mae, r2, .. } = scores(&pairs, near_mean);
            assert!((rmse - 0.612_372_435_695_794_5).abs() < 1e-15 && mae == 0.5, "{rmse} {mae}");
            assert!((r2 - 0.948_608_137_044_967_9).abs() < 1e-14, "{r2}");
        }
        assert!(scores(&[(2.0, 2.0), (2.0, 1.0)], 0.1).r2.is_nan());
        assert_eq!(scores(&[(1.0, 3.0), (3.0, 1.0)], 2.0).r2, -3.0);
    }

    #[test]
    fn number_outcomes_round_trip_through_bytes() {
        let outcome =
            |id| NumberOutcome { id, loss: 0.5, numbers: vec![1.0, -2.0], predicted: vec![id as f32, f32::MAX] };
        let mut bytes = Vec::new();
        (0..3).for_each(|id| outcome(id).write(&mut bytes));
        assert_eq!(NumberOutcome::read(&bytes, 2), [outcome(0), outcome(1), outcome(2)]);
        assert_eq!(outcome(4).residual(0), 3.0);
        assert!(NumberOutcome::read(&[], 2).is_empty());
    }
}

//! Whether a network that says 90 % is right in nine of ten cases: Guo et al. 2017 (arXiv 1706.04599), 15 bins of equal width.

use super::outcome::Outcome;

/// Bins of confidence.
const BINS: usize = 15;

/// Images whose likeliest class has a probability in one range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// How many.
    pub images: u64,
    /// Those whose likeliest class is right.
    pub right: u64,
    /// Sum of these probabilities.
    pub confidence: f64,
}

/// The bins (k/15, (k + 1)/15]; images without a probability are in none.
pub fn calibration(outcomes: &[Outcome]) -> Vec<Bin> {
    let mut bins = vec![Bin::default(); BINS];
    for one in outcomes {
        let p = f64::from(one.guess().p);
        if p.is_nan() {
            continue;
        }
        let bin = &mut bins[((p * BINS as f64).ceil() as usize).clamp(1, BINS) - 1];
        bin.images += 1;
        bin.right += u64::from(one.is_right());
        bin.confidence += p;
    }
    bins
}

/// The expected calibration error: the mean distance of confidence and share of right ones, over the images; NaN without images.
pub fn expected_error(bins: &[Bin]) -> f64 {
    let images: u64 = bins.iter().map(|bin| bin.images).sum();
    let distance: f64 = bins.iter().map(|bin| (bin.confidence - bin.right as f64).abs()).sum();
    distance / images as f64
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Softmax;
    use super::*;

    #[test]
    fn bins_by_hand() {
        // probabilities 0.75 (right), 0.75 (wrong), 0.5 (right)
        let of = |label: u32, odds: f32| {
            let scores = [odds.ln(), 0.0];
            Outcome::new(0, label, &scores, Softmax::of(&scores))
        };
        let bins = calibration(&[of(0, 3.0), of(1, 3.0), of(0, 1.0)]);
        assert_eq!((bins[11].images, bins[11].right, bins[7].images), (2, 1, 1));
        assert!((expected_error(&bins) - (0.5 + 0.5) / 3.0).abs() < 1e-6);
        assert!(expected_error(&calibration(&[])).is_nan());
        assert_eq!(calibration(&[of(0, f32::NAN)]).iter().map(|bin| bin.images).sum::<u64>(), 0);
    }
}

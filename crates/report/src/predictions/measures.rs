//! Measures over all predictions of a split: average precision, calibration and the confusion matrix.
//!
//! Average precision is defined as in scikit-learn's `average_precision_score`: images with equal probabilities have
//! the same position in the order. MPI ranks exchange only the probabilities of the correct classes, and counts.

use std::collections::BTreeMap;

use super::Outcome;

/// For each class, the log-probabilities of this class for the images that belong to it, in ascending order.
pub struct Ranking {
    thresholds: Vec<Vec<f64>>,
    /// Index of each class's first count in the vector of counts.
    starts: Vec<usize>,
}

impl Ranking {
    /// Creates the ranking from the true class and its log-probability for every image of all ranks, in any order.
    pub fn new(classes: usize, own: impl Iterator<Item = (u32, f64)>) -> Self {
        let mut thresholds = vec![Vec::new(); classes];
        for (label, log) in own {
            if let Some(of_class) = thresholds.get_mut(label as usize) {
                of_class.push(number(log));
            }
        }
        thresholds.iter_mut().for_each(|of_class: &mut Vec<f64>| of_class.sort_by(f64::total_cmp));
        let mut starts = Vec::with_capacity(classes);
        let mut end = 0;
        for of_class in &thresholds {
            starts.push(end);
            end += of_class.len() + 1;
        }
        starts.push(end);
        Self { thresholds, starts }
    }

    /// Returns counts that are all 0. The log-probabilities in `thresholds` divide the line into intervals, and each
    /// class has a count for each of its intervals.
    pub fn counts(&self) -> Vec<u64> {
        vec![0; self.starts.last().copied().unwrap_or(0)]
    }

    /// Counts an image with these log-probabilities, one per class: for each class, adds 1 to the count of the interval
    /// that contains the log-probability. Skips classes without images.
    pub fn add(&self, counts: &mut [u64], logs: &[f64]) {
        for ((of_class, start), log) in self.thresholds.iter().zip(&self.starts).zip(logs) {
            if !of_class.is_empty() {
                let log = number(*log);
                counts[start + of_class.partition_point(|threshold| *threshold <= log)] += 1;
            }
        }
    }

    /// Returns the average precision of each class from the counts of all images. `None` for a class without images.
    pub fn precisions(&self, counts: &[u64]) -> Vec<Option<f64>> {
        let parts = self.starts.windows(2).map(|pair| &counts[pair[0]..pair[1]]);
        self.thresholds.iter().zip(parts).map(|(of_class, counts)| precision(of_class, counts)).collect()
    }
}

/// Returns the value by which images are sorted, highest first. NaN is sorted last.
fn number(log: f64) -> f64 {
    if log.is_nan() { f64::NEG_INFINITY } else { log }
}

/// Returns the average precision: the precision at the threshold of each image in the class, averaged over these
/// images.
fn precision(thresholds: &[f64], counts: &[u64]) -> Option<f64> {
    let images = thresholds.len();
    let (mut reached, mut sum, mut end) = (0, 0.0, images);
    while end > 0 {
        // The images of the class from `from` to `end` have the same probability.
        let from = thresholds.partition_point(|threshold| *threshold < thresholds[end - 1]);
        reached += counts[from + 1..=end].iter().sum::<u64>();
        sum += (end - from) as f64 * (images - from) as f64 / reached as f64;
        end = from;
    }
    (images > 0).then(|| sum / images as f64)
}

const BINS: usize = 15;

/// The images whose highest probability is in one range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    pub images: u64,
    /// Number of images for which the most probable class is correct.
    pub right: u64,
    /// Sum of the highest probabilities.
    pub confidence: f64,
}

/// Counts the images in the bins (k/15, (k + 1)/15]. Images with NaN as probability are not counted.
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

/// Returns the expected calibration error: the mean over the images of |confidence - accuracy| of their bin. NaN
/// without images.
pub fn expected_error(bins: &[Bin]) -> f64 {
    let images: u64 = bins.iter().map(|bin| bin.images).sum();
    let distance: f64 = bins.iter().map(|bin| (bin.confidence - bin.right as f64).abs()).sum();
    distance / images as f64
}

/// Maximum number of classes for a dense matrix. A larger matrix would be too big for a page or a file.
const MOST_DENSE: usize = 4096;

/// The confusion matrix. It counts images for each pair of true and predicted class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// Number of images by (true class, predicted class). Zeros are not stored.
    cells: BTreeMap<(u32, u32), u64>,
}

/// An entry of the confusion matrix: how many images with true class `label` were predicted as `taken_for`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub label: u32,
    pub taken_for: u32,
    pub images: u64,
}

impl Confusion {
    pub fn of(classes: usize, outcomes: &[Outcome]) -> Self {
        let mut cells = BTreeMap::new();
        for one in outcomes {
            *cells.entry((one.label, one.guess().class)).or_insert(0) += 1;
        }
        Self { classes, cells }
    }

    /// Iterates over all cells that are not 0, sorted by true class.
    pub fn cells(&self) -> impl Iterator<Item = Pair> {
        self.cells.iter().map(|(&(label, taken_for), &images)| Pair { label, taken_for, images })
    }

    /// Returns the pairs of a true class and another predicted class, most frequent first.
    pub fn pairs(&self) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = self.cells().filter(|pair| pair.label != pair.taken_for).collect();
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.images), pair.label, pair.taken_for));
        pairs
    }

    /// Returns the dense matrix with a row for each true class and a column for each predicted class, or `None` if
    /// there are too many classes.
    pub fn rows(&self) -> Option<Vec<Vec<u64>>> {
        (self.classes <= MOST_DENSE).then(|| {
            let mut rows = vec![vec![0; self.classes]; self.classes];
            for Pair { label, taken_for, images } in self.cells() {
                if let Some(cell) = rows.get_mut(label as usize).and_then(|row| row.get_mut(taken_for as usize)) {
                    *cell = images;
                }
            }
            rows
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Softmax;
    use super::*;

    fn average(rows: &[(u32, [f64; 2])]) -> Vec<Option<f64>> {
        let ranking = Ranking::new(2, rows.iter().map(|(label, logs)| (*label, logs[*label as usize])));
        let mut counts = ranking.counts();
        rows.iter().for_each(|(_, logs)| ranking.add(&mut counts, logs));
        ranking.precisions(&counts)
    }

    /// The example of scikit-learn: truth 0 0 1 1, scores 0.1 0.4 0.35 0.8, average precision 0.8333.
    #[test]
    fn average_precision_matches_scikit_learn() {
        let rows = [(1, [0.0, 0.1]), (1, [0.0, 0.4]), (0, [0.0, 0.35]), (0, [0.0, 0.8])];
        let swapped = rows.map(|(label, logs)| (1 - label, [-logs[1], logs[1]]));
        let found = average(&swapped);
        assert!((found[1].unwrap() - 5.0 / 6.0).abs() < 1e-12, "{found:?}");
        // In descending order: -0.1 (in the class), -0.35 (not), -0.4 (in the class), -0.8. The precisions are 1 and
        // 2/3.
        assert!((found[0].unwrap() - 5.0 / 6.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn equal_scores_share_a_rank() {
        let found = average(&[(0, [1.0, 0.0]), (1, [1.0, 0.0]), (0, [1.0, 0.0]), (1, [1.0, f64::NAN])]);
        assert_eq!(found[0], Some(0.5));
        // Three images reach 0.0, one of them in the class. All four reach NaN.
        assert_eq!(found[1], Some((1.0 / 3.0 + 2.0 / 4.0) / 2.0));
        assert_eq!(average(&[(0, [0.5, 0.5])]), [Some(1.0), None]);
    }

    /// Probabilities that are equal in f32 still have an order, as in scikit-learn with f64.
    #[test]
    fn scores_that_differ_below_f32_precision_are_ranked() {
        let log = -0.7;
        let found = average(&[(0, [log, 0.0]), (1, [log + 1e-12, 0.0])]);
        assert_eq!(found[0], Some(0.5));
        let found = average(&[(0, [log + 1e-12, 0.0]), (1, [log, 0.0])]);
        assert_eq!(found[0], Some(1.0));
    }

    #[test]
    fn calibration_bins_match_a_hand_computed_example() {
        // Probabilities 0.75 (correct), 0.75 (wrong), 0.5 (correct).
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

    #[test]
    fn confusion_cells_match_a_hand_computed_example() {
        let outcome = |label: u32, guess: usize| {
            let mut scores = [0.0; 3];
            scores[guess] = 1.0;
            Outcome::new(0, label, &scores, Softmax::of(&scores))
        };
        let all = [outcome(0, 0), outcome(0, 2), outcome(2, 1), outcome(2, 1), outcome(1, 1)];
        let confusion = Confusion::of(3, &all);
        assert_eq!(confusion.rows().unwrap(), [[1, 0, 1], [0, 1, 0], [0, 2, 0]]);
        let pairs = confusion.pairs();
        assert_eq!(pairs[0], Pair { label: 2, taken_for: 1, images: 2 });
        assert_eq!((pairs.len(), pairs[1].taken_for), (2, 2));
        assert!(Confusion::of(5000, &all).rows().is_none());
    }
}

//! Average precision of each class, one against all others, from rows of probabilities that stay where they are: only the probabilities
//! of right classes and counts travel. The definition is scikit-learn's `average_precision_score`: equal probabilities share a rank.

/// For each class, the log-probabilities that its own images give it, ascending.
pub struct Ranking {
    thresholds: Vec<Vec<f64>>,
    /// Where the counts of each class begin.
    starts: Vec<usize>,
}

impl Ranking {
    /// For so many classes, of the class and the log-probability of every image of all ranks, in any order.
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

    /// Zeros: one count for each gap between the thresholds of each class.
    pub fn counts(&self) -> Vec<u64> {
        vec![0; self.starts.last().copied().unwrap_or(0)]
    }

    /// Counts an image with these log-probabilities, one a class.
    pub fn add(&self, counts: &mut [u64], logs: &[f64]) {
        for ((of_class, start), log) in self.thresholds.iter().zip(&self.starts).zip(logs) {
            if !of_class.is_empty() {
                let log = number(*log);
                counts[start + of_class.partition_point(|threshold| *threshold <= log)] += 1;
            }
        }
    }

    /// The average precision of each class, of the counts of all images; none for a class without images.
    pub fn precisions(&self, counts: &[u64]) -> Vec<Option<f64>> {
        let parts = self.starts.windows(2).map(|pair| &counts[pair[0]..pair[1]]);
        self.thresholds.iter().zip(parts).map(|(of_class, counts)| precision(of_class, counts)).collect()
    }
}

/// What is no number is ranked last.
fn number(log: f64) -> f64 {
    if log.is_nan() { f64::NEG_INFINITY } else { log }
}

/// At each threshold, the share of the class's images among all that reach it, averaged over the class's images.
fn precision(thresholds: &[f64], counts: &[u64]) -> Option<f64> {
    let images = thresholds.len();
    let (mut reached, mut sum, mut end) = (0, 0.0, images);
    while end > 0 {
        // the images of the class between `from` and `end` have the same probability
        let from = thresholds.partition_point(|threshold| *threshold < thresholds[end - 1]);
        reached += counts[from + 1..=end].iter().sum::<u64>();
        sum += (end - from) as f64 * (images - from) as f64 / reached as f64;
        end = from;
    }
    (images > 0).then(|| sum / images as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn average(rows: &[(u32, [f64; 2])]) -> Vec<Option<f64>> {
        let ranking = Ranking::new(2, rows.iter().map(|(label, logs)| (*label, logs[*label as usize])));
        let mut counts = ranking.counts();
        rows.iter().for_each(|(_, logs)| ranking.add(&mut counts, logs));
        ranking.precisions(&counts)
    }

    /// scikit-learn's own example: truth 0 0 1 1, scores 0.1 0.4 0.35 0.8: 0.8333.
    #[test]
    fn precisions_by_hand() {
        let rows = [(1, [0.0, 0.1]), (1, [0.0, 0.4]), (0, [0.0, 0.35]), (0, [0.0, 0.8])];
        let swapped = rows.map(|(label, logs)| (1 - label, [-logs[1], logs[1]]));
        let found = average(&swapped);
        assert!((found[1].unwrap() - 5.0 / 6.0).abs() < 1e-12, "{found:?}");
        // -0.1 (of it), -0.35 (other), -0.4 (of it), -0.8: 1 and 2/3
        assert!((found[0].unwrap() - 5.0 / 6.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn equal_ones_share_a_rank() {
        let found = average(&[(0, [1.0, 0.0]), (1, [1.0, 0.0]), (0, [1.0, 0.0]), (1, [1.0, f64::NAN])]);
        assert_eq!(found[0], Some(0.5));
        // 0.0 is reached by three, one of them of the class; NaN by all four
        assert_eq!(found[1], Some((1.0 / 3.0 + 2.0 / 4.0) / 2.0));
        assert_eq!(average(&[(0, [0.5, 0.5])]), [Some(1.0), None]);
    }

    /// Probabilities that differ by less than f32 can tell have ranks of their own, as in scikit-learn with probabilities in f64.
    #[test]
    fn close_ones_are_told_apart() {
        let log = -0.693_147_180_559_945_3_f64;
        let found = average(&[(0, [log, 0.0]), (1, [log + 1e-12, 0.0])]);
        assert_eq!(found[0], Some(0.5));
        let found = average(&[(0, [log + 1e-12, 0.0]), (1, [log, 0.0])]);
        assert_eq!(found[0], Some(1.0));
    }
}

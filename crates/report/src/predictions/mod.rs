//! The network's predictions for each image of a split, and all scores computed from them. The results depend only on
//! the images in the order of their ids, so they are the same on any number of ranks.

mod measures;
mod numbers;

pub use measures::{Bin, Confusion, Pair, Ranking, calibration, expected_error};
pub use numbers::{ErrorSums, NumberOutcome, TargetScore};

/// Number of classes stored for each image, the most probable ones.
const TOP_CLASSES: usize = 5;

/// Marks unused entries if the network has fewer classes.
const NONE: u32 = u32::MAX;

/// The softmax of an image's scores, computed in f64.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    highest: f64,
    log_total: f64,
}

impl Softmax {
    pub fn of(scores: &[f32]) -> Self {
        let highest = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let total: f64 = scores.iter().map(|score| (f64::from(*score) - highest).exp()).sum();
        Self { highest, log_total: total.ln() }
    }

    /// Returns the natural logarithm of the probability of a class with this score.
    pub fn log(self, score: f32) -> f64 {
        f64::from(score) - self.highest - self.log_total
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    pub class: u32,
    /// The probability. NaN if any score of the image is NaN.
    pub p: f32,
}

/// The prediction for one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Index of the image in its split.
    pub id: u64,
    pub label: u32,
    /// Position of the true class if the classes are sorted by score, from 0. Classes with equal scores are sorted by
    /// index. If the score of the true class is NaN, this is the number of classes.
    pub place: u32,
    pub loss: f64,
    guesses: [Guess; TOP_CLASSES],
}

impl Outcome {
    /// Length of the binary form in bytes.
    pub const BYTES: usize = 24 + 8 * TOP_CLASSES;

    /// Creates the prediction from an image's scores, one per class.
    pub fn new(id: u64, label: u32, scores: &[f32], softmax: Softmax) -> Self {
        let own = scores.get(label as usize).copied().unwrap_or(f32::NAN);
        let before = |(i, score): (usize, &f32)| *score > own || (*score == own && i < label as usize);
        let place = match own.is_nan() {
            true => scores.len(),
            false => scores.iter().enumerate().filter(|one| before(*one)).count(),
        };
        let best = best(scores);
        let guess = |class: u32| Guess {
            class,
            p: scores.get(class as usize).map_or(0.0, |score| softmax.log(*score).exp() as f32),
        };
        Self { id, label, place: place as u32, loss: -softmax.log(own), guesses: best.map(guess) }
    }

    /// Returns the five most probable classes in descending order, or fewer if the network has fewer.
    pub fn guesses(&self) -> impl Iterator<Item = Guess> {
        self.guesses.into_iter().filter(|guess| guess.class != NONE)
    }

    /// Returns the most probable class.
    pub fn guess(&self) -> Guess {
        self.guesses[0]
    }

    /// Returns true if the most probable class is the true class.
    pub fn is_right(&self) -> bool {
        self.place == 0
    }

    /// Appends the binary form, which [`Outcome::read`] parses.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.id.to_le_bytes());
        to.extend(self.label.to_le_bytes());
        to.extend(self.place.to_le_bytes());
        to.extend(self.loss.to_le_bytes());
        for guess in self.guesses {
            to.extend(guess.class.to_le_bytes());
            to.extend(guess.p.to_le_bytes());
        }
    }

    /// Reads all complete entries in `bytes`.
    pub fn read(mut bytes: &[u8]) -> Vec<Self> {
        std::iter::from_fn(|| Self::take(&mut bytes)).collect()
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let id = u64::from_le_bytes(chunk(bytes)?);
        let (label, place) = (u32::from_le_bytes(chunk(bytes)?), u32::from_le_bytes(chunk(bytes)?));
        let loss = f64::from_le_bytes(chunk(bytes)?);
        let mut guesses = [Guess { class: NONE, p: 0.0 }; TOP_CLASSES];
        for guess in &mut guesses {
            *guess = Guess { class: u32::from_le_bytes(chunk(bytes)?), p: f32::from_le_bytes(chunk(bytes)?) };
        }
        Some(Self { id, label, place, loss, guesses })
    }
}

/// Returns the classes with the highest scores. Equal scores are ordered by class index, NaN comes last.
fn best(scores: &[f32]) -> [u32; TOP_CLASSES] {
    let mut best = [NONE; TOP_CLASSES];
    let value = |class: u32| scores.get(class as usize).copied().filter(|score| !score.is_nan());
    for class in 0..scores.len() as u32 {
        let beats = |other: u32| match (value(class), value(other)) {
            (Some(own), Some(held)) => own > held,
            (own, None) => own.is_some() || other == NONE,
            (None, Some(_)) => false,
        };
        let Some(at) = best.iter().position(|held| beats(*held)) else { continue };
        best[at..].rotate_right(1);
        best[at] = class;
    }
    best
}

/// The prediction for one image of multi-label data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MultiLabelOutcome {
    /// Index of the image in its split.
    pub id: u64,
    /// Mean binary cross-entropy over the classes.
    pub loss: f64,
    /// The true classes, ascending.
    pub labels: Vec<u32>,
    /// The classes with a probability above 0.5, ascending, with their probabilities.
    pub predicted: Vec<(u32, f32)>,
}

/// Returns the probability of a class from its score if classes are independent.
pub fn sigmoid(score: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(score)).exp())
}

impl MultiLabelOutcome {
    /// Creates the prediction from an image's true classes and its scores, one per class.
    pub fn new(id: u64, loss: f64, labels: &[u32], scores: &[f32]) -> Self {
        let taken = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
        let predicted = taken.map(|(class, score)| (class as u32, sigmoid(*score) as f32)).collect();
        Self { id, loss, labels: labels.to_vec(), predicted }
    }

    /// Returns true if exactly the true classes were predicted.
    pub fn is_right(&self) -> bool {
        self.labels.iter().eq(self.predicted.iter().map(|(class, _)| class))
    }

    /// Appends the binary form, which [`MultiLabelOutcome::read`] parses.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.id.to_le_bytes());
        to.extend(self.loss.to_le_bytes());
        to.extend([self.labels.len(), self.predicted.len()].iter().flat_map(|count| (*count as u32).to_le_bytes()));
        to.extend(self.labels.iter().flat_map(|class| class.to_le_bytes()));
        for (class, p) in &self.predicted {
            to.extend(class.to_le_bytes());
            to.extend(p.to_le_bytes());
        }
    }

    /// Reads all complete entries in `bytes`.
    pub fn read(mut bytes: &[u8]) -> Vec<Self> {
        std::iter::from_fn(|| Self::take(&mut bytes)).collect()
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (id, loss) = (u64::from_le_bytes(chunk(bytes)?), f64::from_le_bytes(chunk(bytes)?));
        let [labels, predicted] = [u32::from_le_bytes(chunk(bytes)?), u32::from_le_bytes(chunk(bytes)?)];
        let labels = (0..labels).map(|_| Some(u32::from_le_bytes(chunk(bytes)?))).collect::<Option<_>>()?;
        let pair = |bytes: &mut &[u8]| Some((u32::from_le_bytes(chunk(bytes)?), f32::from_le_bytes(chunk(bytes)?)));
        let predicted = (0..predicted).map(|_| pair(bytes)).collect::<Option<_>>()?;
        Some(Self { id, loss, labels, predicted })
    }
}

/// Takes the first `N` bytes, or returns `None` if there are fewer.
fn chunk<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

/// The counts and scores of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassScore {
    /// Number of images in the class.
    pub images: u64,
    /// Number of images predicted as this class.
    pub predicted: u64,
    /// Number of correctly predicted images of this class.
    pub right: u64,
    /// Average precision, if it was computed and the class has images.
    pub average_precision: Option<f64>,
}

impl ClassScore {
    /// Returns the share of correct predictions of this class, or `None` if no image was predicted as this class.
    pub fn precision(&self) -> Option<f64> {
        (self.predicted > 0).then(|| self.right as f64 / self.predicted as f64)
    }

    /// Returns the share of the class's images that were predicted correctly, or `None` if the class has no images.
    pub fn recall(&self) -> Option<f64> {
        (self.images > 0).then(|| self.right as f64 / self.images as f64)
    }

    /// Returns the harmonic mean of precision and recall, or `None` if the class has neither images nor predictions.
    pub fn f1(&self) -> Option<f64> {
        let all = self.images + self.predicted;
        (all > 0).then(|| 2.0 * self.right as f64 / all as f64)
    }
}

/// The predictions for all images of a split.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    classes: usize,
    outcomes: Vec<Outcome>,
    /// Average precision of each class, if it was computed.
    precisions: Option<Vec<Option<f64>>>,
}

impl Predictions {
    /// Sorts the outcomes, which may be in any order. `precisions` are the average precisions of the classes, if they
    /// were computed.
    pub fn new(classes: usize, mut outcomes: Vec<Outcome>, precisions: Option<Vec<Option<f64>>>) -> Self {
        outcomes.sort_by_key(|one| one.id);
        Self { classes, outcomes, precisions }
    }

    /// Returns the outcomes in the order of the split.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    pub fn confusion(&self) -> Confusion {
        Confusion::of(self.classes, &self.outcomes)
    }

    pub fn per_class(&self) -> Vec<ClassScore> {
        let mut scores = vec![ClassScore::default(); self.classes];
        for one in &self.outcomes {
            if let Some(own) = scores.get_mut(one.label as usize) {
                own.images += 1;
                own.right += u64::from(one.is_right());
            }
            if let Some(guessed) = scores.get_mut(one.guess().class as usize) {
                guessed.predicted += 1;
            }
        }
        let known = self.precisions.iter().flatten();
        scores.iter_mut().zip(known).for_each(|(score, precision)| score.average_precision = *precision);
        scores
    }

    /// Returns the share of images whose true class is among the `k` most probable. NaN without images.
    pub fn top(&self, k: usize) -> f64 {
        let among = self.outcomes.iter().filter(|one| (one.place as usize) < k).count();
        among as f64 / self.outcomes.len() as f64
    }

    /// Returns the mean F1 score of the classes that have images or predictions, as in scikit-learn.
    pub fn macro_f1(&self) -> f64 {
        mean(self.per_class().iter().filter_map(ClassScore::f1))
    }

    /// Returns the mean average precision of the classes that have images, or `None` if it was not computed.
    pub fn mean_precision(&self) -> Option<f64> {
        self.precisions.as_ref().map(|precisions| mean(precisions.iter().flatten().copied()))
    }

    /// Returns the wrong predictions, highest loss first.
    pub fn mistakes(&self) -> Vec<Outcome> {
        let mut mistakes: Vec<Outcome> = self.outcomes.iter().filter(|one| !one.is_right()).copied().collect();
        mistakes.sort_by(|a, b| b.loss.total_cmp(&a.loss).then(a.id.cmp(&b.id)));
        mistakes
    }
}

/// Returns the mean, or NaN if there are no values.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(label: u32, scores: &[f32]) -> Outcome {
        Outcome::new(7, label, scores, Softmax::of(scores))
    }

    #[test]
    fn rank_and_guesses_match_a_hand_computed_example() {
        let one = outcome(2, &[1.0, 3.0, 1.0, 0.0, -1.0, 0.5, 1.0]);
        assert_eq!((one.place, one.is_right()), (2, false));
        assert_eq!(one.guesses().map(|guess| guess.class).collect::<Vec<_>>(), [1, 0, 2, 6, 5]);
        let even = outcome(1, &[0.0, 0.0]);
        assert_eq!((even.place, even.loss, even.guess().p), (1, 2f64.ln(), 0.5));
        assert_eq!(even.guesses().count(), 2);
        assert!(outcome(0, &[0.0, 0.0]).is_right());
    }

    #[test]
    fn outcomes_with_nan_scores_are_never_right() {
        let lost = outcome(1, &[0.0, f32::NAN, 2.0]);
        assert_eq!((lost.place, lost.is_right(), lost.guess().class), (3, false, 2));
        assert!(lost.loss.is_nan() && lost.guess().p.is_nan());
        assert_eq!(outcome(0, &[f32::NAN; 2]).guesses().map(|guess| guess.class).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn outcomes_round_trip_through_bytes() {
        let both = [outcome(2, &[1.0, 3.0, 1.5]), outcome(0, &[9.0, 1.0, 2.0])];
        let mut bytes = Vec::new();
        both.iter().for_each(|one| one.write(&mut bytes));
        assert_eq!((bytes.len(), Outcome::read(&bytes).as_slice()), (2 * Outcome::BYTES, both.as_slice()));
    }

    #[test]
    fn multi_label_outcomes_round_trip_through_bytes() {
        let all = [
            MultiLabelOutcome::new(7, 0.5, &[0, 2], &[1.0, -1.0, 0.25]),
            MultiLabelOutcome::new(8, 0.25, &[], &[-1.0, 0.0, f32::NAN]),
            MultiLabelOutcome::new(9, 0.75, &[1], &[3.0, 0.5, -0.5]),
        ];
        assert_eq!(all.each_ref().map(MultiLabelOutcome::is_right), [true, true, false]);
        assert_eq!(all[2].predicted[0], (0, sigmoid(3.0) as f32));
        let mut bytes = Vec::new();
        all.iter().for_each(|one| one.write(&mut bytes));
        assert_eq!(MultiLabelOutcome::read(&bytes), all);
        assert_eq!(MultiLabelOutcome::read(&bytes[..bytes.len() - 1]), all[..2]);
    }

    #[test]
    fn precision_recall_and_f1_match_hand_computed_values() {
        let score = ClassScore { images: 4, predicted: 6, right: 3, average_precision: None };
        assert_eq!((score.precision(), score.recall(), score.f1()), (Some(0.5), Some(0.75), Some(0.6)));
        let absent = ClassScore { predicted: 2, ..ClassScore::default() };
        assert_eq!((absent.precision(), absent.recall(), absent.f1()), (Some(0.0), None, Some(0.0)));
        assert_eq!(ClassScore::default().f1(), None);
    }

    #[test]
    fn prediction_scores_match_a_hand_computed_example() {
        let of = |id: u64, label: u32, scores: [f32; 3]| Outcome::new(id, label, &scores, Softmax::of(&scores));
        let all = vec![of(2, 1, [3.0, 0.0, 0.0]), of(0, 0, [2.0, 1.0, 0.0]), of(1, 1, [0.5, 1.0, 0.0])];
        let predictions = Predictions::new(3, all, Some(vec![Some(0.5), Some(1.0), None]));
        assert_eq!(predictions.outcomes().iter().map(|one| one.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((predictions.top(1), predictions.top(2)), (2.0 / 3.0, 1.0));
        assert_eq!(predictions.mean_precision(), Some(0.75));
        // F1 is 2/3 for classes 0 and 1. Class 2 does not occur.
        assert!((predictions.macro_f1() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(predictions.mistakes().iter().map(|one| one.id).collect::<Vec<_>>(), [2]);
        assert_eq!(predictions.per_class()[1].average_precision, Some(1.0));
    }
}

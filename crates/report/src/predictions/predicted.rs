//! The outcomes of all images of a split, and the scores that follow.

use super::class_score::ClassScore;
use super::confusion::Confusion;
use super::outcome::Outcome;

/// What a network made of all images of a split.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    classes: usize,
    outcomes: Vec<Outcome>,
    /// One a class, where they were computed.
    precisions: Option<Vec<Option<f64>>>,
}

impl Predictions {
    /// Of so many classes, the outcomes in any order; `precisions` are the average precisions of the classes, if they are known.
    pub fn new(classes: usize, mut outcomes: Vec<Outcome>, precisions: Option<Vec<Option<f64>>>) -> Self {
        outcomes.sort_by_key(|one| one.id);
        Self { classes, outcomes, precisions }
    }

    /// In the order of the split.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Which classes were taken for which.
    pub fn confusion(&self) -> Confusion {
        Confusion::of(self.classes, &self.outcomes)
    }

    /// The scores of each class.
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

    /// Share of the images whose class is among the `k` likeliest; NaN without images.
    pub fn top(&self, k: usize) -> f64 {
        let among = self.outcomes.iter().filter(|one| (one.place as usize) < k).count();
        among as f64 / self.outcomes.len() as f64
    }

    /// Mean F1 of the classes that have images or that some image was taken for, as scikit-learn has it.
    pub fn macro_f1(&self) -> f64 {
        mean(self.per_class().iter().filter_map(ClassScore::f1))
    }

    /// Mean of the average precisions of the classes that have images; none where they were not computed.
    pub fn mean_precision(&self) -> Option<f64> {
        self.precisions.as_ref().map(|precisions| mean(precisions.iter().flatten().copied()))
    }

    /// The mistakes, that with the highest loss first.
    pub fn mistakes(&self) -> Vec<Outcome> {
        let mut mistakes: Vec<Outcome> = self.outcomes.iter().filter(|one| !one.is_right()).copied().collect();
        mistakes.sort_by(|a, b| b.loss.total_cmp(&a.loss).then(a.id.cmp(&b.id)));
        mistakes
    }
}

/// NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Softmax;
    use super::*;

    #[test]
    fn scores_by_hand() {
        let of = |id: u64, label: u32, scores: [f32; 3]| Outcome::new(id, label, &scores, Softmax::of(&scores));
        let all = vec![of(2, 1, [3.0, 0.0, 0.0]), of(0, 0, [2.0, 1.0, 0.0]), of(1, 1, [0.5, 1.0, 0.0])];
        let predictions = Predictions::new(3, all, Some(vec![Some(0.5), Some(1.0), None]));
        assert_eq!(predictions.outcomes().iter().map(|one| one.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((predictions.top(1), predictions.top(2)), (2.0 / 3.0, 1.0));
        assert_eq!(predictions.mean_precision(), Some(0.75));
        // F1 of class 0: 2/3, of class 1: 2/3; class 2 does not occur
        assert!((predictions.macro_f1() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(predictions.mistakes().iter().map(|one| one.id).collect::<Vec<_>>(), [2]);
        assert_eq!(predictions.per_class()[1].average_precision, Some(1.0));
    }
}

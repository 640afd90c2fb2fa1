//! The scores of one class.

/// How well one class is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassScore {
    /// Its images.
    pub images: u64,
    /// Images that were taken for it.
    pub predicted: u64,
    /// Images of it that were taken for it.
    pub right: u64,
    /// Mean of the precisions down the images ranked by its probability, at each that is of it; where that was computed, and it has images.
    pub average_precision: Option<f64>,
}

impl ClassScore {
    /// Share of the images taken for it that are of it; none if none was.
    pub fn precision(&self) -> Option<f64> {
        (self.predicted > 0).then(|| self.right as f64 / self.predicted as f64)
    }

    /// Share of its images that were taken for it; none if it has none.
    pub fn recall(&self) -> Option<f64> {
        (self.images > 0).then(|| self.right as f64 / self.images as f64)
    }

    /// Harmonic mean of both; none if it neither has images nor was any taken for it.
    pub fn f1(&self) -> Option<f64> {
        let all = self.images + self.predicted;
        (all > 0).then(|| 2.0 * self.right as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_hand() {
        let score = ClassScore { images: 4, predicted: 6, right: 3, average_precision: None };
        assert_eq!((score.precision(), score.recall(), score.f1()), (Some(0.5), Some(0.75), Some(0.6)));
        let absent = ClassScore { predicted: 2, ..ClassScore::default() };
        assert_eq!((absent.precision(), absent.recall(), absent.f1()), (Some(0.0), None, Some(0.0)));
        assert_eq!(ClassScore::default().f1(), None);
    }
}

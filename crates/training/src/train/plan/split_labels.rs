//! The labels of a training split and the number of images per class, for recipes that weight or balance classes.

use base::text::printable;
use loaders::{Error, Split};
use recipe::{ClassWeights, OnCorrupt, Recipe};

/// Maximum number of classes that the log lists individually.
const LISTED: usize = 20;

/// Number of threads that read labels. They mostly wait for the storage.
pub const LABEL_THREADS: usize = 8;

/// The labels of a split and their counts.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitLabels {
    /// The label of each image, indexed by image id. `None` for a bad record that is skipped.
    pub labels: Vec<Option<u32>>,
    /// Number of images per class.
    pub counts: Vec<u64>,
}

impl SplitLabels {
    pub fn are_needed(recipe: &Recipe) -> bool {
        let counted = matches!(recipe.loss.class_weights, Some(ClassWeights::Auto | ClassWeights::Effective(_)));
        counted || recipe.balanced()
    }

    pub fn read(split: &Split, recipe: &Recipe) -> Result<Self, Error> {
        let skip = recipe.loader.on_corrupt == OnCorrupt::Skip;
        Ok(Self::from_labels(split.labels(skip, LABEL_THREADS)?, split.classes()))
    }

    pub fn from_labels(labels: Vec<Option<u32>>, classes: usize) -> Self {
        let mut counts = vec![0; classes];
        labels.iter().flatten().for_each(|label| counts[*label as usize] += 1);
        Self { labels, counts }
    }

    /// Returns the weight of each class by `rule`. The mean over classes with images is 1. A class without images has
    /// weight 0.
    pub fn weights(&self, rule: &ClassWeights) -> Vec<f64> {
        let weight = |n: u64| match rule {
            _ if n == 0 => 0.0,
            ClassWeights::Effective(beta) => (1.0 - beta) / -(n as f64 * beta.ln()).exp_m1(),
            _ => 1.0 / n as f64,
        };
        let all: Vec<f64> = self.counts.iter().map(|n| weight(*n)).collect();
        let present = all.iter().filter(|w| **w > 0.0).count();
        let mean = all.iter().sum::<f64>() / present.max(1) as f64;
        all.into_iter().map(|w| w / mean).collect()
    }

    /// Formats the number of images per class for the log. If there are many classes, lists only the smallest and the
    /// largest.
    pub fn describe(&self, names: &[String]) -> String {
        let mut classes: Vec<(&String, u64)> = names.iter().zip(self.counts.iter().copied()).collect();
        let text = |classes: &[(&String, u64)]| {
            classes.iter().map(|(name, n)| format!("{} {n}", printable(name))).collect::<Vec<_>>().join(", ")
        };
        if classes.len() <= LISTED {
            return text(&classes);
        }
        classes.sort_by_key(|(_, n)| *n);
        let (few, many) = (LISTED / 4, classes.len() - LISTED / 4);
        let median = classes[classes.len() / 2].1;
        format!(
            "{} classes, the median has {median} images; fewest: {}; most: {}",
            classes.len(),
            text(&classes[..few]),
            text(&classes[many..])
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_labels(counts: &[usize]) -> SplitLabels {
        let labels = (0..).zip(counts).flat_map(|(label, n)| std::iter::repeat_n(Some(label), *n));
        SplitLabels::from_labels(labels.chain([None]).collect(), counts.len())
    }

    #[test]
    fn rare_classes_have_larger_weights() {
        let split_labels = split_labels(&[8, 0, 2, 4]);
        assert_eq!((split_labels.labels.len(), split_labels.counts.as_slice()), (15, [8, 0, 2, 4].as_slice()));
        // the mean of 1/8, 1/2 and 1/4 is 7/24
        let inverse: Vec<f64> = [1.0 / 8.0, 0.0, 0.5, 0.25].iter().map(|w| w * 24.0 / 7.0).collect();
        for (got, want) in split_labels.weights(&ClassWeights::Auto).iter().zip(&inverse) {
            assert!((got - want).abs() < 1e-12, "{got} for {want}");
        }
        // Cui et al. 2019: (1 - beta) / (1 - beta^n) for a class with n images
        let effective = split_labels.weights(&ClassWeights::Effective(0.9));
        let of = |n: i32| 0.1 / (1.0 - 0.9f64.powi(n));
        let mean = (of(8) + of(2) + of(4)) / 3.0;
        for (got, want) in effective.iter().zip([of(8), 0.0, of(2), of(4)]) {
            assert!((got - want / mean).abs() < 1e-12, "{got} for {want}");
        }
        // for beta near 1, weights are proportional to the inverse frequency
        for (got, want) in split_labels.weights(&ClassWeights::Effective(1.0 - 1e-12)).iter().zip(&inverse) {
            assert!((got - want).abs() < 1e-9, "{got} for {want}");
        }
    }

    #[test]
    fn few_classes_are_listed_and_many_are_summarised() {
        let names = |n: usize| (0..n).map(|i| format!("c{i}")).collect::<Vec<_>>();
        assert_eq!(split_labels(&[3, 1]).describe(&names(2)), "c0 3, c1 1");
        let many = split_labels(&(1..=30).rev().collect::<Vec<_>>()).describe(&names(30));
        support::mentions(&many, &["30 classes", "median has 16", ": c29 1, c28 2, "]);
        assert!(many.ends_with("c1 29, c0 30"), "{many}");
    }
}

//! Computes the targets of the loss if a label per row is not enough: a table over all classes with mixed and smoothed
//! labels.

use backend::{Backend, Distance, LossForm, Objective, SoftTargets, Teaching};
use loaders::{LabelSets, Mix, Target};
use recipe::{LossKind, LossSpec, OverClasses, Recipe};

use crate::train::plan::run::Run;

/// Returns how the loss compares numbers, or `None` if it is a loss for classes.
pub fn distance(loss: &LossSpec) -> Option<Distance> {
    match loss.kind() {
        LossKind::Mse => Some(Distance::Squared),
        LossKind::L1 => Some(Distance::Absolute),
        LossKind::Huber => Some(Distance::Huber { delta: loss.delta() as f32 }),
        LossKind::CrossEntropy | LossKind::Bce | LossKind::Focal | LossKind::SigmoidFocal => None,
    }
}

/// Returns the objective of the loss, or `None` for plain cross-entropy with a label per row.
pub fn objective(recipe: &Recipe) -> Option<Objective> {
    let loss = &recipe.loss;
    let mean = loss.over_classes() == OverClasses::Mean;
    let (form, gamma) = match loss.kind() {
        LossKind::CrossEntropy => (LossForm::Softmax, 0.0),
        LossKind::Focal => (LossForm::Softmax, loss.gamma()),
        LossKind::Bce => (LossForm::Sigmoid { alpha: None, mean }, 0.0),
        LossKind::SigmoidFocal => (LossForm::Sigmoid { alpha: Some(loss.alpha() as f32), mean }, loss.gamma()),
        LossKind::Mse | LossKind::L1 | LossKind::Huber => {
            (LossForm::Distance(distance(loss).unwrap_or(Distance::Squared)), 0.0)
        }
    };
    let distill = &recipe.distill;
    let [share, temperature] = [distill.share(), distill.temperature()].map(|v| v as f32);
    let teacher = distill.teacher.as_ref().map(|_| Teaching { share, temperature });
    let objective = Objective { form, gamma: gamma as f32, teacher };
    let weighted = loss.class_weights.is_some();
    let plain = objective == Objective::CROSS_ENTROPY && !weighted && recipe.mix.settings().is_none();
    (!plain).then_some(objective)
}

/// Describes the loss for the log. Returns `None` for plain cross-entropy.
pub fn describe(recipe: &Recipe) -> Option<String> {
    let loss = &recipe.loss;
    let over = format!("{} over classes", loss.over_classes());
    let weighted = loss.class_weights.as_ref().map(|weights| format!("class weights {weights}"));
    let (gamma, alpha) = (loss.gamma(), loss.alpha());
    let kind = match loss.kind() {
        LossKind::CrossEntropy => None,
        LossKind::Focal => Some(format!("focal, gamma {gamma}")),
        LossKind::Bce => Some(format!("binary cross-entropy, {over}")),
        LossKind::SigmoidFocal => Some(format!("sigmoid focal, gamma {gamma}, alpha {alpha}, {over}")),
        LossKind::Mse => Some("mean squared error of the standardised targets".into()),
        LossKind::L1 => Some("mean absolute error of the standardised targets".into()),
        LossKind::Huber => Some(format!("Huber's loss of the standardised targets, delta {}", loss.delta())),
    };
    let parts: Vec<String> = kind.into_iter().chain(weighted).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Fills the target table for each pass.
pub struct Targets {
    classes: usize,
    smoothing: f64,
    /// Targets above this value become 1, the rest 0.
    threshold: Option<f64>,
    /// Weight of each class. `None` if all are equal.
    weights: Option<Vec<f64>>,
    /// True for softmax losses: each target is multiplied by the weight of its class. Otherwise each class has its own
    /// loss, and only the weight of the whole row applies.
    folded: bool,
    /// The scale of each target, if labels are numbers.
    numbers: Vec<Target>,
    /// For each row, the class that counts as a correct prediction.
    labels: Vec<u32>,
    /// Sum of the rows' weights in the table that was filled last.
    total: f64,
}

impl Targets {
    /// Creates the targets, or returns `None` if the run does not need them.
    pub fn from_run<B: Backend>(run: &Run<B>) -> Option<Self> {
        let objective = objective(&run.recipe)?;
        let (smoothing, threshold) = (run.recipe.label_smoothing, run.recipe.loss.threshold);
        let (weights, folded) = (run.source.class_weights(), objective.form == LossForm::Softmax);
        let (classes, labels, numbers) = (run.graph.classes(), Vec::new(), run.source.manifest.targets.clone());
        Some(Self { classes, smoothing, threshold, weights, folded, numbers, labels, total: 0.0 })
    }

    /// Fills the `table` of a pass (see [`SoftTargets::table`](backend::SoftTargets::table)) from the images' labels
    /// and their mixing. Returns, for each row, the class that counts as a correct prediction. For a mixed image this
    /// is the class with the larger share.
    ///
    /// With smoothing s and K classes, the target of class c is s / K + (1 - s) p. Here p is the share of the image's
    /// own class, 1 - share for its partner's class, 1 if both have the same class, and 0 for other classes. Then the
    /// threshold and the class weights are applied, if there are any.
    pub fn fill(&mut self, labels: &[u32], mix: Option<Mix>, table: &mut Vec<f32>) -> &[u32] {
        let (rows, stride) = (labels.len(), 1 + self.classes);
        let share = mix.map_or(1.0, |mix| f64::from(mix.share));
        let even = self.smoothing / self.classes as f64;
        table.clear();
        table.resize(rows * stride, even as f32);
        self.labels.clear();
        self.total = 0.0;
        for (row, all) in table.chunks_exact_mut(stride).enumerate() {
            let (own, partner) = (labels[row], labels[Mix::partner(row, rows)]);
            let kept = if own == partner { 1.0 } else { share };
            let target = |part: f64| (even + (1.0 - self.smoothing) * part) as f32;
            all[0] = 1.0;
            all[1 + partner as usize] = target(1.0 - kept);
            all[1 + own as usize] = target(kept);
            if let Some(threshold) = self.threshold {
                all[1..].iter_mut().for_each(|t| *t = f32::from(u8::from(f64::from(*t) > threshold)));
            }
            if let Some(weights) = &self.weights {
                let [of_own, of_partner] = [own, partner].map(|class| weights[class as usize]);
                let weight = kept * of_own + (1.0 - kept) * of_partner;
                self.total += weight;
                all[0] = weight as f32;
                if self.folded {
                    all[1..].iter_mut().zip(weights).for_each(|(t, w)| *t = (f64::from(*t) * w) as f32);
                }
            }
            self.labels.push(if share < 0.5 { partner } else { own });
        }
        &self.labels
    }

    /// Fills the table for multi-label images. If an image has share p of a class, its target with smoothing s is (1 -
    /// s) p + s / 2, as Keras smooths a binary cross-entropy. Then the threshold is applied, if there is one. A
    /// prediction counts as correct if it is any class with a target above 0.5.
    pub fn fill_sets(&mut self, sets: &LabelSets, mix: Option<Mix>, table: &mut Vec<f32>) -> &[u32] {
        let (rows, stride) = (sets.len(), 1 + self.classes);
        let share = mix.map_or(1.0, |mix| f64::from(mix.share));
        let (keep, even) = (1.0 - self.smoothing, 0.5 * self.smoothing);
        let mut parts = vec![0.0; self.classes];
        table.clear();
        for row in 0..rows {
            parts.fill(0.0);
            sets.get(row).iter().for_each(|class| parts[*class as usize] += share);
            sets.get(Mix::partner(row, rows)).iter().for_each(|class| parts[*class as usize] += 1.0 - share);
            table.push(1.0);
            table.extend(parts.iter().map(|part| {
                let target = keep * part + even;
                self.threshold.map_or(target, |threshold| f64::from(u8::from(target > threshold))) as f32
            }));
        }
        debug_assert_eq!(table.len(), rows * stride);
        self.any_class(rows)
    }

    /// Fills the table for images with numbers. `values` has all images' numbers, image after image. Each number is
    /// standardised: minus the target's mean, divided by its deviation. A mixed image has the weighted mean of both
    /// images' targets.
    pub fn fill_numbers(&mut self, values: &[f32], mix: Option<Mix>, table: &mut Vec<f32>) -> &[u32] {
        let rows = values.len() / self.classes.max(1);
        let share = mix.map_or(1.0, |mix| f64::from(mix.share));
        table.clear();
        for row in 0..rows {
            let [own, partner] =
                [row, Mix::partner(row, rows)].map(|row| &values[row * self.classes..][..self.classes]);
            table.push(1.0);
            table.extend(own.iter().zip(partner).zip(&self.numbers).map(|((own, partner), target)| {
                let [own, partner] = [own, partner].map(|value| target.standardize(f64::from(*value)));
                (if share == 1.0 { own } else { share * own + (1.0 - share) * partner }) as f32
            }));
        }
        self.any_class(rows)
    }

    /// Returns labels that do not name a class.
    fn any_class(&mut self, rows: usize) -> &[u32] {
        self.labels.clear();
        self.labels.resize(rows, SoftTargets::ANY);
        &self.labels
    }

    /// Returns the sum of the rows' weights in this pass, or `None` without class weights.
    pub fn weight(&self) -> Option<f64> {
        self.weights.as_ref().map(|_| self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Targets {
        let (threshold, weights, labels, numbers) = (None, None, Vec::new(), Vec::new());
        Targets { classes: 4, smoothing: 0.0, threshold, weights, folded: true, numbers, labels, total: 0.0 }
    }

    fn fill(labels: &[u32], mix: Option<Mix>, smoothing: f64) -> (Vec<f32>, Vec<u32>) {
        let (mut targets, mut table) = (Targets { smoothing, labels: vec![9], ..plain() }, vec![7.0]);
        let hits = targets.fill(labels, mix, &mut table).to_vec();
        (table, hits)
    }

    #[test]
    fn targets_match_timm() {
        // timm 1.0.31: mixup_target(torch.tensor([0, 2, 2]), 4, lam, smoothing), by tests/golden/soft_loss.py
        let mix = |share| Some(Mix { share, area: None });
        let rows = |table: &[f32]| table.chunks(5).map(|row| row[1..].to_vec()).collect::<Vec<_>>();
        let (table, hits) = fill(&[0, 2, 2], mix(0.25), 0.0);
        assert_eq!(rows(&table), [[0.25, 0.0, 0.75, 0.0], [0.0, 0.0, 1.0, 0.0], [0.75, 0.0, 0.25, 0.0]]);
        assert_eq!(hits, [2, 2, 0], "the class with the larger share");
        let (table, hits) = fill(&[0, 2, 2], mix(0.75), 0.1);
        let expected = [[0.7, 0.025, 0.25, 0.025], [0.025, 0.025, 0.925, 0.025], [0.25, 0.025, 0.7, 0.025]];
        for (got, want) in rows(&table).iter().flatten().zip(expected.iter().flatten()) {
            assert!((got - want).abs() < 1e-7, "{table:?}");
        }
        assert_eq!(hits, [0, 2, 2]);
        assert!(table.chunks(5).all(|row| row[0] == 1.0), "every row counts once");
    }

    #[test]
    fn a_batch_that_is_not_mixed_has_its_labels() {
        let (table, hits) = fill(&[3, 1], None, 0.0);
        assert_eq!(table, [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(hits, [3, 1]);
        assert_eq!(fill(&[], None, 0.1), (vec![], vec![]));
    }

    #[test]
    fn numbers_are_standardised_and_mixed() {
        let target = |mean, std| Target { name: "x".into(), mean, std };
        let numbers = vec![target(10.0, 2.0), target(-1.0, 0.0)];
        let (mut targets, mut table) = (Targets { classes: 2, numbers, ..plain() }, Vec::new());
        let labels = targets.fill_numbers(&[12.0, -1.0, 8.0, 0.5], None, &mut table).to_vec();
        // a target has the scale 1 if all its numbers are equal
        assert_eq!((table.as_slice(), labels), (&[1.0, 1.0, 0.0, 1.0, -1.0, 1.5][..], vec![SoftTargets::ANY; 2]));
        targets.fill_numbers(&[12.0, -1.0, 8.0, 0.5], Some(Mix { share: 0.75, area: None }), &mut table);
        assert_eq!(table, [1.0, 0.5, 0.375, 1.0, -0.5, 1.125]);
        assert_eq!(targets.weight(), None);
    }

    #[test]
    fn a_threshold_makes_targets_of_0_and_1() {
        let mut targets = Targets { smoothing: 0.1, threshold: Some(0.2), ..plain() };
        let mut table = Vec::new();
        targets.fill(&[0, 1, 3, 2], Some(Mix { share: 0.75, area: None }), &mut table);
        // 0.7 and 0.25 are above the threshold, 0.025 is not
        assert_eq!(table[..5], [1.0, 1.0, 0.0, 1.0, 0.0]);
        targets.fill(&[0, 1, 3, 2], Some(Mix { share: 0.9, area: None }), &mut table);
        assert_eq!(table[..5], [1.0, 1.0, 0.0, 0.0, 0.0], "0.115 is not above either");
    }

    #[test]
    fn classes_count_by_their_weights() {
        let weights = vec![0.5, 1.0, 2.0, 4.0];
        let mut folded = Targets { smoothing: 0.2, weights: Some(weights.clone()), ..plain() };
        let mut table = Vec::new();
        folded.fill(&[3, 0], None, &mut table);
        // as in PyTorch's loss, a class's weight also applies to its smoothing
        for (got, want) in table.iter().zip([4.0, 0.025, 0.05, 0.1, 3.4, 0.5, 0.425, 0.05, 0.1, 0.2]) {
            assert!((f64::from(*got) - want).abs() < 1e-6, "{table:?}");
        }
        assert_eq!(folded.weight(), Some(4.5));
        // the weight of a mixed row is the mean of both class weights, weighted by the shares
        folded.fill(&[3, 0], Some(Mix { share: 0.75, area: None }), &mut table);
        assert_eq!((table[0], table[5], folded.weight()), (3.125, 1.375, Some(4.5)));
        let mut rows = Targets { folded: false, ..folded };
        rows.fill(&[3, 0], None, &mut table);
        assert!((table[0], table[5]) == (4.0, 0.5) && (table[4] - 0.85).abs() < 1e-6, "{table:?}");
        assert_eq!(plain().weight(), None);
    }
}

//! Collects per-image results of an evaluation and gathers them on rank 0.

use backend::{Distance, place_of_best};
use comm::Comm;
use formats::checkpoint::{LabelScores, NumberScores};
use loaders::{LabelSets, Target};
use report::predictions::{
    ClassScore, ErrorSums, MultiLabelOutcome, NumberOutcome, Outcome, Predictions, Ranking, Softmax, TargetScore, mean,
};

use crate::error::Error;

/// Maximum number of probabilities to keep for average precisions, over all ranks. They take 1 GiB.
const MAX_VALUES: u64 = 1 << 27;

/// The results of an evaluation that are needed in addition to the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Only the sums of the score.
    Score,
    /// The prediction for each image.
    Outcomes,
    /// Predictions and average precisions.
    Precisions,
}

/// Collects this rank's results for single-label images.
pub(super) struct Collector {
    classes: usize,
    /// The outcomes, encoded by [`Outcome::write`].
    outcomes: Vec<u8>,
    logs: Option<ClassValues>,
}

/// Values by which images are sorted to compute each class's average precision: a row of log-probabilities or scores
/// per image.
#[derive(Default)]
pub(super) struct ClassValues {
    sets: LabelSets,
    values: Vec<f64>,
}

impl Collector {
    /// Creates a collector, or `None` if only the score is needed. `images` is the number of images on all ranks.
    pub fn new(detail: Detail, classes: usize, images: u64) -> Option<Self> {
        let logs = ClassValues::fitting(classes, images).filter(|_| detail == Detail::Precisions);
        (detail != Detail::Score).then(|| Self { classes, outcomes: Vec::new(), logs })
    }

    /// Adds images with their labels and a row of scores per image.
    pub fn add(&mut self, ids: &[u64], labels: &[u32], scores: &[f32]) {
        for ((id, label), row) in ids.iter().zip(labels).zip(scores.chunks_exact(self.classes.max(1))) {
            let softmax = Softmax::of(row);
            Outcome::new(*id, *label, row, softmax).write(&mut self.outcomes);
            if let Some(logs) = &mut self.logs {
                logs.add(&[*label], row.iter().map(|score| softmax.log(*score)));
            }
        }
    }

    /// Gathers the results on rank 0. Returns `None` on other ranks. Collective.
    pub fn gather(self, comm: &Comm) -> Result<Option<Predictions>, Error> {
        let Self { classes, outcomes, logs } = self;
        let precisions = logs.map(|logs| logs.precisions(comm, classes)).transpose()?;
        let all = comm.run("gathering of predictions", move |world| world.gather(&outcomes))?;
        let all = all.map(|ranks| ranks.iter().flat_map(|bytes| Outcome::read(bytes)).collect());
        Ok(all.map(|outcomes| Predictions::new(classes, outcomes, precisions)))
    }
}

/// Returns true if average precisions of this size are computed.
pub fn precisions_fit(classes: usize, images: u64) -> bool {
    images.saturating_mul(classes as u64) <= MAX_VALUES
}

impl ClassValues {
    /// Creates an empty table, or returns `None` if the values of all images need too much memory.
    pub fn fitting(classes: usize, images: u64) -> Option<Self> {
        precisions_fit(classes, images).then(Self::default)
    }

    /// Adds an image with its labels and its values.
    pub fn add(&mut self, classes: &[u32], values: impl Iterator<Item = f64>) {
        self.sets.push(classes.iter().copied());
        self.values.extend(values);
    }

    /// Returns the average precision of each class over all ranks. Collective.
    pub fn precisions(&self, comm: &Comm, classes: usize) -> Result<Vec<Option<f64>>, Error> {
        let own = self.own(classes);
        let all = comm.run("probabilities of right classes", |world| {
            let mut all = world.gather(&own)?.map_or_else(Vec::new, |all| all.concat());
            world.broadcast(&mut all)?;
            Ok(all)
        })?;
        let ranking = ranking(classes, &all);
        let mut counts = self.counts(&ranking, classes);
        comm.run("sum of ranks of images", |world| world.sum_u64(&mut counts))?;
        Ok(ranking.precisions(&counts))
    }

    /// Encodes, for each image and each of its labels, the label and its value.
    fn own(&self, classes: usize) -> Vec<u8> {
        let mut own = Vec::new();
        for (labels, row) in self.sets.iter().zip(self.values.chunks_exact(classes.max(1))) {
            for label in labels {
                own.extend(label.to_le_bytes());
                own.extend(row.get(*label as usize).copied().unwrap_or(f64::NAN).to_le_bytes());
            }
        }
        own
    }

    /// Counts this rank's images between the thresholds in `ranking`, for each class.
    fn counts(&self, ranking: &Ranking, classes: usize) -> Vec<u64> {
        let mut counts = ranking.counts();
        self.values.chunks_exact(classes.max(1)).for_each(|row| ranking.add(&mut counts, row));
        counts
    }

    /// Works like [`ClassValues::precisions`] for a single rank.
    #[cfg(test)]
    pub fn alone(&self, classes: usize) -> Vec<Option<f64>> {
        let ranking = ranking(classes, &self.own(classes));
        ranking.precisions(&self.counts(&ranking, classes))
    }
}

/// Decodes the labels and values of all images from [`ClassValues::own`].
fn ranking(classes: usize, own: &[u8]) -> Ranking {
    let pair = |bytes: &[u8; 12]| {
        let [a, b, c, d, rest @ ..] = *bytes;
        (u32::from_le_bytes([a, b, c, d]), f64::from_le_bytes(rest))
    };
    Ranking::new(classes, own.as_chunks().0.iter().map(pair))
}

/// Gathers encoded outcomes on rank 0 and decodes them, in the order of the split. Returns `None` on other ranks, and if
/// there are no outcomes. Collective if there are outcomes.
fn gather_sorted<T>(
    comm: &Comm,
    own: Option<Vec<u8>>,
    read: impl Fn(&[u8]) -> Vec<T>,
    id: fn(&T) -> u64,
) -> Result<Option<Vec<T>>, Error> {
    let Some(own) = own else { return Ok(None) };
    let all = comm.run("gathering of predictions", move |world| world.gather(&own))?;
    Ok(all.map(|ranks| {
        let mut all: Vec<T> = ranks.iter().flat_map(|bytes| read(bytes)).collect();
        all.sort_by_key(id);
        all
    }))
}

/// The sums over the images of a batch, as part of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BatchScore {
    /// Sum of the images' losses. For multi-label images this is the binary cross-entropy averaged over the classes, for numbers the loss
    /// in training averaged over the targets.
    pub loss: f64,
    /// Number of images for which one of their labels has the highest score. 0 if labels are numbers.
    pub top1: u64,
    /// Number of images for which one of their labels is among the five highest scores. 0 if labels are numbers.
    pub top5: u64,
    pub count: u64,
}

/// Collects this rank's results for multi-label images.
pub(super) struct MultiLabelCollector {
    /// Per class: the numbers of images with this label, of images with a probability above 0.5, and of images with
    /// both.
    counts: Vec<[u64; 3]>,
    /// Scores of this rank's images, for average precisions. `None` if they need too much memory.
    ranks: Option<ClassValues>,
    /// Encoded predictions for each image, if requested.
    outcomes: Option<Vec<u8>>,
}

pub(super) struct MultiLabelResults {
    /// The scores of each class. Equal on every rank.
    pub per_class: Vec<ClassScore>,
    /// Predictions for each image in the order of the split, if requested. Only on rank 0.
    pub outcomes: Option<Vec<MultiLabelOutcome>>,
}

impl MultiLabelCollector {
    /// Creates a collector. `images` is the number of images on all ranks. `each` requests the prediction for each
    /// image.
    pub fn new(classes: usize, images: u64, each: bool) -> Self {
        let outcomes = each.then(Vec::new);
        Self { counts: vec![[0; 3]; classes], ranks: ClassValues::fitting(classes, images), outcomes }
    }

    /// Adds images with their labels and a row of scores per image.
    pub fn add(&mut self, ids: &[u64], sets: &LabelSets, scores: &[f32]) -> BatchScore {
        let (classes, mut part) = (self.counts.len(), BatchScore::default());
        for ((id, own), row) in ids.iter().zip(sets.iter()).zip(scores.chunks_exact(classes.max(1))) {
            let (place, loss) = (place(own, row), loss(own, row));
            part.top1 += u64::from(place.is_some_and(|place| place < 1));
            part.top5 += u64::from(place.is_some_and(|place| place < 5));
            part.loss += loss;
            part.count += 1;
            for (class, (counts, score)) in self.counts.iter_mut().zip(row).enumerate() {
                // a score above 0 is a probability above 0.5
                let (is_own, is_taken) = (own.binary_search(&(class as u32)).is_ok(), *score > 0.0);
                counts[0] += u64::from(is_own);
                counts[1] += u64::from(is_taken);
                counts[2] += u64::from(is_own && is_taken);
            }
            if let Some(outcomes) = &mut self.outcomes {
                MultiLabelOutcome::new(*id, loss, own, row).write(outcomes);
            }
            if let Some(ranks) = &mut self.ranks {
                ranks.add(own, row.iter().map(|score| f64::from(*score)));
            }
        }
        part
    }

    pub fn gather(self, comm: &Comm) -> Result<MultiLabelResults, Error> {
        let Self { counts, ranks, outcomes } = self;
        let precisions = ranks.map(|ranks| ranks.precisions(comm, counts.len())).transpose()?;
        let mut flat = counts.concat();
        comm.run("sum of counts of classes", |world| world.sum_u64(&mut flat))?;
        let per_class = class_scores(flat.as_chunks().0, precisions.as_deref());
        let outcomes = gather_sorted(comm, outcomes, MultiLabelOutcome::read, |one| one.id)?;
        Ok(MultiLabelResults { per_class, outcomes })
    }
}

fn class_scores(counts: &[[u64; 3]], precisions: Option<&[Option<f64>]>) -> Vec<ClassScore> {
    let class = |(number, counts): (usize, &[u64; 3])| {
        let [images, predicted, right] = *counts;
        let average_precision = precisions.and_then(|all| all[number]);
        ClassScore { images, predicted, right, average_precision }
    };
    counts.iter().enumerate().map(class).collect()
}

/// Returns the mean average precision over classes with images, the mean F1 over classes with images or predictions,
/// and the F1 of all classes together.
pub(super) fn over_classes(classes: &[ClassScore]) -> LabelScores {
    let sum = |of: fn(&ClassScore) -> u64| classes.iter().map(of).sum::<u64>() as f64;
    let (right, both) = (sum(|class| class.right), sum(|class| class.images) + sum(|class| class.predicted));
    LabelScores {
        map: mean(classes.iter().filter_map(|class| class.average_precision)),
        micro_f1: if both > 0.0 { 2.0 * right / both } else { 0.0 },
        macro_f1: mean(classes.iter().filter_map(ClassScore::f1)),
    }
}

/// Returns how many classes have a higher score than the image's best label.
fn place(own: &[u32], scores: &[f32]) -> Option<usize> {
    place_of_best(own.iter().map(|class| *class as usize), scores)
}

/// Returns the binary cross-entropy as a mean over the classes.
fn loss(own: &[u32], scores: &[f32]) -> f64 {
    let each = |(class, score): (usize, &f32)| {
        let z = f64::from(*score);
        let target = f64::from(u8::from(own.binary_search(&(class as u32)).is_ok()));
        let larger = if z.is_nan() { z } else { z.max(0.0) };
        larger - z * target + (-z.abs()).exp().ln_1p()
    };
    scores.iter().enumerate().map(each).sum::<f64>() / scores.len().max(1) as f64
}

/// Converts a network's outputs to numbers, and compares them with an image's numbers.
#[derive(Clone, Debug)]
pub struct NumberScale {
    /// The targets that the network was trained on.
    pub targets: Vec<Target>,
    /// The loss in training. It compares standardised numbers.
    pub distance: Distance,
}

/// Collects this rank's results of a network that predicts numbers.
pub(super) struct NumberCollector {
    scale: NumberScale,
    /// Sums over the batch that was added last, per target.
    sums: Vec<ErrorSums>,
    /// Encoded predictions for each image, if requested.
    outcomes: Option<Vec<u8>>,
}

impl NumberCollector {
    /// Creates a collector. `each` requests the prediction for each image.
    pub fn new(scale: NumberScale, each: bool) -> Self {
        Self { sums: Vec::new(), outcomes: each.then(Vec::new), scale }
    }

    /// Adds a batch: the images' ids, their target values, and their rows in the network's output.
    pub fn add(&mut self, ids: &[u64], numbers: &[f32], outputs: &[f32]) -> BatchScore {
        let Self { scale: NumberScale { targets, distance }, sums, outcomes } = self;
        let mut part = BatchScore::default();
        sums.clear();
        sums.resize(targets.len(), ErrorSums::default());
        let rows = numbers.chunks_exact(targets.len().max(1)).zip(outputs.chunks_exact(targets.len().max(1)));
        for (id, (numbers, outputs)) in ids.iter().zip(rows) {
            let mut loss = 0.0;
            let mut predicted = Vec::with_capacity(targets.len());
            for (((number, output), target), sums) in numbers.iter().zip(outputs).zip(&*targets).zip(&mut *sums) {
                let (number, output) = (f64::from(*number), f64::from(*output));
                loss += distance.loss(output - target.standardize(number))[0] / targets.len() as f64;
                let restored = target.restore(output);
                sums.add(number, restored, target.mean);
                predicted.push(restored as f32);
            }
            part.loss += loss;
            part.count += 1;
            if let Some(outcomes) = outcomes {
                NumberOutcome { id: *id, loss, numbers: numbers.to_vec(), predicted }.write(outcomes);
            }
        }
        part
    }

    /// Returns the last batch's sums in their flat form.
    pub fn sums(&self) -> impl Iterator<Item = f64> {
        self.sums.iter().flat_map(|sums| sums.to_flat())
    }

    /// Returns the number of sums per batch.
    pub fn width(&self) -> usize {
        self.scale.targets.len() * ErrorSums::WIDTH
    }

    /// Returns the scores from the sums over all batches, and gathers the predictions on rank 0, if they were requested.
    /// Collective.
    pub fn finish(self, comm: &Comm, totals: &[f64], count: u64) -> Result<NumberResults, Error> {
        let targets = &self.scale.targets;
        let each = totals.as_chunks().0.iter().zip(targets);
        let per_target: Vec<TargetScore> =
            each.map(|(sums, target)| ErrorSums::scores(*sums, count, &target.name)).collect();
        let read = |bytes: &[u8]| NumberOutcome::read(bytes, targets.len());
        let outcomes = gather_sorted(comm, self.outcomes, read, |one| one.id)?;
        Ok(NumberResults { per_target, outcomes })
    }
}

#[derive(Clone, Debug)]
pub struct NumberResults {
    /// Scores per target. Equal on every rank.
    pub per_target: Vec<TargetScore>,
    /// Predictions for each image in split order, if requested. Only on rank 0.
    pub outcomes: Option<Vec<NumberOutcome>>,
}

impl NumberResults {
    /// Returns the means over the targets. The mean R2 leaves out a target if all images have the same number.
    pub fn means(&self) -> NumberScores {
        let of = |score: fn(&TargetScore) -> f64| mean(self.per_target.iter().map(score));
        let r2 = mean(self.per_target.iter().map(|score| score.r2).filter(|r2| !r2.is_nan()));
        NumberScores { rmse: of(|score| score.rmse), mae: of(|score| score.mae), r2 }
    }
}

/// Returns the labels of each image in a batch. For single-label images each set has a single label.
pub(super) fn sets_of(batch: &loaders::Batch) -> LabelSets {
    let one = || {
        let mut sets = LabelSets::default();
        batch.labels().iter().for_each(|label| sets.push([*label]));
        sets
    };
    batch.label_sets().cloned().unwrap_or_else(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Golden {
        truth: Vec<Vec<u8>>,
        scores: Vec<Vec<f32>>,
        average_precision: Vec<Option<f64>>,
        map: f64,
        micro_f1: f64,
        macro_f1: f64,
        loss: f64,
        top1: f64,
    }

    fn collected(sets: &[&[u32]], scores: &[f32], classes: usize) -> (MultiLabelCollector, BatchScore) {
        let mut all = LabelSets::default();
        sets.iter().for_each(|set| all.push(set.iter().copied()));
        let ids: Vec<u64> = (0..sets.len() as u64).collect();
        let mut collector = MultiLabelCollector::new(classes, ids.len() as u64, true);
        let part = collector.add(&ids, &all, scores);
        (collector, part)
    }

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-12, "{got} for {want}");
    }

    #[test]
    fn the_numbers_of_scikit_learn_and_pytorch() {
        let golden: Golden =
            serde_json::from_str(include_str!("../../../../../tests/golden/multi_label.json")).unwrap();
        let classes = golden.average_precision.len();
        let own = |row: &Vec<u8>| (0..).zip(row).filter(|(_, t)| **t == 1).map(|(c, _)| c).collect::<Vec<u32>>();
        let sets: Vec<Vec<u32>> = golden.truth.iter().map(own).collect();
        let sets: Vec<&[u32]> = sets.iter().map(Vec::as_slice).collect();
        let (collector, part) = collected(&sets, &golden.scores.concat(), classes);
        let precisions = collector.ranks.as_ref().unwrap().alone(classes);
        for (got, want) in precisions.iter().zip(&golden.average_precision) {
            assert_eq!(got.is_some(), want.is_some());
            near(got.unwrap_or(0.0), want.unwrap_or(0.0));
        }
        let scores = over_classes(&class_scores(&collector.counts, Some(&precisions)));
        near(scores.map, golden.map);
        near(scores.micro_f1, golden.micro_f1);
        near(scores.macro_f1, golden.macro_f1);
        near(part.loss / part.count as f64, golden.loss);
        near(part.top1 as f64 / part.count as f64, golden.top1);
    }

    #[test]
    fn places_by_hand() {
        let scores = [1.0, 3.0, 1.0, f32::NAN, -1.0, 0.5, 0.25];
        assert_eq!(place(&[1], &scores), Some(0));
        assert_eq!((place(&[0, 4], &scores), place(&[2], &scores), place(&[4], &scores)), (Some(1), Some(2), Some(5)));
        assert_eq!((place(&[3], &scores), place(&[3, 5], &scores), place(&[], &scores)), (None, Some(3), None));
        let (_, part) = collected(&[&[3], &[1, 4], &[4], &[]], &scores.repeat(4), 7);
        assert_eq!((part.top1, part.top5, part.count), (1, 1, 4));
        assert!(part.loss.is_nan());
    }

    #[test]
    fn numbers_are_restored_before_they_are_scored() {
        let target = |name: &str, mean, std| Target { name: name.into(), mean, std };
        let targets = vec![target("x", 100.0, 10.0), target("y", 0.0, 0.0)];
        let mut collector = NumberCollector::new(NumberScale { targets, distance: Distance::Squared }, true);
        let part = collector.add(&[4, 2], &[110.0, 0.5, 90.0, 0.5], &[1.5, 0.5, -1.0, 1.5]);
        // standardised errors: 0.5 and 0, then 0 and 1
        assert_eq!((part.loss, part.count, part.top1), ((0.25 + 1.0) / 2.0, 2, 0));
        assert_eq!(collector.width(), 8);
        let sums: Vec<f64> = collector.sums().collect();
        assert_eq!(sums, [25.0, 5.0, 0.0, 200.0, 1.0, 1.0, 1.0, 0.5]);
        let outcomes = NumberOutcome::read(collector.outcomes.as_ref().unwrap(), 2);
        assert_eq!((outcomes[0].id, outcomes[0].predicted.as_slice()), (4, &[115.0, 0.5][..]));
        let per_target = sums.as_chunks().0.iter().map(|sums| ErrorSums::scores(*sums, 2, "")).collect();
        let means = NumberResults { per_target, outcomes: None }.means();
        let root = |v: f64| v.sqrt();
        assert_eq!((means.rmse, means.mae), ((root(12.5) + root(0.5)) / 2.0, (2.5 + 0.5) / 2.0));
        assert_eq!(means.r2, 1.0 - 25.0 / 200.0, "a constant target has no R2");
        // the next batch replaces these sums
        collector.add(&[5], &[100.0, 0.0], &[0.0, 0.0]);
        assert_eq!(collector.sums().sum::<f64>(), 0.0);
    }

    #[test]
    fn nothing_predicted_and_nothing_there() {
        let (collector, part) = collected(&[&[], &[]], &[-1.0; 6], 3);
        let scores = over_classes(&class_scores(&collector.counts, None));
        assert!(scores.map.is_nan() && scores.macro_f1.is_nan());
        assert_eq!((scores.micro_f1, part.top1), (0.0, 0));
        near(part.loss, 2.0 * (-1f64).exp().ln_1p());
    }
}

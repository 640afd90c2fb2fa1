//! The training order that gives every class the same share of an epoch's draws, and the evaluation orders.

use std::sync::Arc;

use crate::order::job::{Job, Order};
use crate::order::permutation::Permutation;

/// Draws samples of every class equally often. An epoch has as many draws as there are samples, and the numbers of
/// draws per class differ by at most one.
///
/// Each class uses one permutation of its samples after another. A rare class uses more than one permutation per epoch.
/// A frequent class continues where the previous epoch stopped. A draw is a function of seed, epoch and position.
#[derive(Debug, Clone)]
pub struct Balanced {
    seed: u64,
    /// Sample ids of each class that has samples.
    classes: Vec<Vec<u64>>,
    /// Draws per epoch: the number of samples, divided by the copies per draw.
    n: u64,
}

impl Balanced {
    /// Creates the order for samples with these labels, indexed by id. Samples without a label are never drawn.
    pub fn new(seed: u64, labels: &[Option<u32>]) -> Self {
        let mut classes: Vec<Vec<u64>> = Vec::new();
        for (id, label) in (0..).zip(labels) {
            let Some(label) = label.map(|label| label as usize) else { continue };
            if classes.len() <= label {
                classes.resize(label + 1, Vec::new());
            }
            classes[label].push(id);
        }
        classes.retain(|ids| !ids.is_empty());
        Self { seed, classes, n: labels.len() as u64 }
    }

    /// Returns the same order with another number of draws per epoch.
    pub(super) fn with_draws(&self, n: u64) -> Self {
        Self { n, ..self.clone() }
    }

    /// Returns the number of draws per epoch.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Returns the number of classes that have samples.
    pub fn classes(&self) -> u64 {
        self.classes.len() as u64
    }

    /// Returns the largest number of copies per draw with which an epoch still has a draw for each class.
    pub fn most_repeats(&self) -> u64 {
        self.n.saturating_sub(1).checked_div(self.classes().saturating_sub(1)).unwrap_or(u64::MAX)
    }

    /// Returns true if no sample has a label.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Returns the sample for draw `place` in an epoch, and before it the number of the permutation that the class uses
    /// for this draw. Each permutation draws a sample once. The caller has already permuted `place`.
    ///
    /// # Panics
    ///
    /// Panics if there are no classes.
    pub(super) fn draw(&self, epoch: u32, place: u64) -> (u64, u64) {
        let classes = self.classes.len() as u64;
        let (class, draw) = (place % classes, place / classes);
        // Number of draws that this class has per epoch.
        let each = self.n / classes + u64::from(class < self.n % classes);
        let number = u64::from(epoch) * each + draw;
        let ids = &self.classes[class as usize];
        let (turn, at) = (number / ids.len() as u64, number % ids.len() as u64);
        // Domain 0 is used for the permutation of the epoch's draws.
        let permutation = Permutation::for_domain(self.seed, turn as u32, 1 + class as u32, ids.len() as u64);
        (turn, ids[permutation.get(at) as usize])
    }
}

/// The evaluation order. Batches follow the sample ids, and ranks get whole batches round-robin, so the batches are the
/// same for any number of ranks. [`Job::step`] is the batch's number. Epoch and worker are 0.
#[derive(Debug, Clone)]
pub struct EvalOrder {
    n: u64,
    batch: u64,
    next: u64,
    ranks: u64,
}

impl EvalOrder {
    /// Creates the order of rank `rank` of `ranks`, for `n` samples in batches of `batch`.
    ///
    /// # Panics
    ///
    /// Panics if `batch` is 0 or `rank` is not below `ranks`.
    pub fn new(n: u64, batch: usize, rank: usize, ranks: usize) -> Self {
        assert!(batch > 0, "batch must not be 0");
        assert!(rank < ranks, "no rank {rank} of {ranks}");
        Self { n, batch: batch as u64, next: rank as u64, ranks: ranks as u64 }
    }
}

impl Order for EvalOrder {
    fn fill(&mut self, job: &mut Job) -> bool {
        let first = self.next.saturating_mul(self.batch);
        if first >= self.n {
            return false;
        }
        (job.epoch, job.step, job.worker) = (0, self.next, 0);
        job.ids.clear();
        job.ahead.clear();
        job.ids.extend(first..self.n.min(first.saturating_add(self.batch)));
        self.next += self.ranks;
        true
    }

    fn largest(&self) -> usize {
        self.batch as usize
    }
}

/// Applies another order to a list of ids: the ids of the other order are indices into the list.
#[derive(Debug, Clone)]
pub struct SubsetOrder<O> {
    order: O,
    ids: Arc<[u64]>,
}

impl<O: Order> SubsetOrder<O> {
    /// Creates an order over the samples `ids`. `order` must be for this many samples.
    pub fn new(order: O, ids: Arc<[u64]>) -> Self {
        Self { order, ids }
    }
}

impl<O: Order> Order for SubsetOrder<O> {
    /// # Panics
    ///
    /// Panics if `order` is for more samples than there are ids.
    fn fill(&mut self, job: &mut Job) -> bool {
        let more = self.order.fill(job);
        if more {
            job.ids.iter_mut().for_each(|id| *id = self.ids[*id as usize]);
        }
        more
    }

    fn largest(&self) -> usize {
        self.order.largest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::jobs;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn subset_order_returns_only_the_chosen_samples() {
        let ids: Arc<[u64]> = [3, 5, 8, 13, 21].into();
        let order = SubsetOrder::new(EvalOrder::new(5, 2, 0, 1), ids);
        let batches: Vec<_> = jobs(order).into_iter().map(|job| job.ids).collect();
        assert_eq!(batches, [vec![3, 5], vec![8, 13], vec![21]]);
    }

    /// Returns 61 labels: class 0 three times, class 2 forty times, class 5 seventeen times, and one missing label.
    fn labels() -> Vec<Option<u32>> {
        let of = |n: usize, class| std::iter::repeat_n(class, n);
        of(3, Some(0)).chain(of(40, Some(2))).chain(of(1, None)).chain(of(17, Some(5))).collect()
    }

    fn epoch(balanced: &Balanced, epoch: u32) -> Vec<u64> {
        let permutation = Permutation::new(9, epoch, balanced.len());
        (0..balanced.len()).map(|position| balanced.draw(epoch, permutation.get(position)).1).collect()
    }

    #[test]
    fn classes_have_equal_shares_of_every_epoch() {
        let (labels, balanced) = (labels(), Balanced::new(9, &labels()));
        for number in 0..4 {
            let ids = epoch(&balanced, number);
            assert_eq!(ids.len(), 61);
            let mut counts = BTreeMap::new();
            ids.iter().for_each(|id| *counts.entry(labels[*id as usize].expect("a label")).or_insert(0) += 1);
            assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(0, 21), (2, 20), (5, 20)]);
        }
    }

    #[test]
    fn each_class_uses_all_samples_before_repeating_one() {
        let balanced = Balanced::new(9, &labels());
        let mut seen = BTreeMap::new();
        for number in 0..34 {
            epoch(&balanced, number).iter().for_each(|id| *seen.entry(*id).or_insert(0u32) += 1);
        }
        // In 34 epochs, the three classes have 714, 680 and 680 draws.
        let range = |ids: std::ops::Range<u64>| {
            let counts: Vec<u32> = ids.map(|id| seen.get(&id).copied().unwrap_or(0)).collect();
            (*counts.iter().min().unwrap(), *counts.iter().max().unwrap())
        };
        assert_eq!((range(0..3), range(3..43), range(44..61)), ((238, 238), (17, 17), (40, 40)));
        assert!(!seen.contains_key(&43), "it has no label");
    }

    #[test]
    fn an_epoch_has_every_class_up_to_the_most_repeats() {
        for (classes, samples, most) in [(2, 2, 1), (5, 10, 2), (5, 13, 3), (7, 50, 8), (100, 250, 2)] {
            let labels: Vec<_> = (0..samples).map(|id: u32| Some(id % classes)).collect();
            let balanced = Balanced::new(9, &labels);
            assert_eq!((balanced.classes(), balanced.most_repeats()), (u64::from(classes), most));
            let drawn = |repeats| {
                let order = balanced.with_draws(balanced.len().div_ceil(repeats));
                epoch(&order, 0).iter().map(|id| id % u64::from(classes)).collect::<BTreeSet<_>>().len()
            };
            (1..=most).for_each(|repeats| assert_eq!(drawn(repeats), classes as usize, "{samples} / {repeats}"));
            assert!(drawn(most + 1) < classes as usize, "{samples} / {}", most + 1);
        }
        assert_eq!(Balanced::new(9, &[Some(3), Some(3)]).most_repeats(), u64::MAX);
    }

    #[test]
    fn epochs_and_seeds_change_the_order() {
        let balanced = Balanced::new(9, &labels());
        assert_ne!(epoch(&balanced, 0), epoch(&balanced, 1));
        assert_ne!(epoch(&balanced, 0), epoch(&Balanced::new(10, &labels()), 0));
        assert_eq!(epoch(&balanced, 3), epoch(&Balanced::new(9, &labels()), 3));
        assert!(Balanced::new(1, &[None, None]).is_empty());
    }

    #[test]
    fn evaluation_batches_do_not_depend_on_ranks() {
        let whole = jobs(EvalOrder::new(25, 10, 0, 1));
        assert_eq!(
            whole.iter().map(|j| j.ids.clone()).collect::<Vec<_>>(),
            [(0..10).collect::<Vec<_>>(), (10..20).collect(), (20..25).collect()]
        );
        for ranks in 1..=5 {
            let mut parts: Vec<_> = (0..ranks).flat_map(|rank| jobs(EvalOrder::new(25, 10, rank, ranks))).collect();
            parts.sort_by_key(|job| job.step);
            assert_eq!(parts, whole);
        }
    }

    #[test]
    fn an_order_without_samples_is_empty() {
        assert_eq!(jobs(EvalOrder::new(0, 4, 0, 1)), []);
    }
}

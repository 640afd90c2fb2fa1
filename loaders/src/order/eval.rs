//! The order of evaluation, over a whole split or over some of its samples.

use std::sync::Arc;

use crate::order::job::{Job, Order};

/// The evaluation order: logical batches in order of ids, dealt whole and round-robin to ranks, so that the batches are the same for
/// any number of ranks. `step` is the batch's number; epoch and worker are 0.
#[derive(Debug, Clone)]
pub struct EvalOrder {
    n: u64,
    batch: u64,
    next: u64,
    ranks: u64,
}

impl EvalOrder {
    /// `n` samples in batches of `batch`; the part of rank `rank` of `ranks`.
    ///
    /// # Panics
    /// If `batch` is 0 or `rank` is not below `ranks`.
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

/// Another order whose ids are places in a list of ids.
#[derive(Debug, Clone)]
pub struct Chosen<O> {
    order: O,
    ids: Arc<[u64]>,
}

impl<O: Order> Chosen<O> {
    /// The samples `ids`, as `order`, which is over as many samples, has them.
    pub fn new(order: O, ids: Arc<[u64]>) -> Self {
        Self { order, ids }
    }
}

impl<O: Order> Order for Chosen<O> {
    /// # Panics
    /// If `order` is over more samples than there are ids.
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

    fn jobs(mut order: impl Order) -> Vec<Job> {
        let mut job = Job::default();
        std::iter::from_fn(|| order.fill(&mut job).then(|| job.clone())).collect()
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
    fn no_samples_end_at_once() {
        assert_eq!(jobs(EvalOrder::new(0, 4, 0, 1)), []);
    }
}

#[cfg(test)]
mod chosen_tests {
    use super::*;
    use crate::order::EvalOrder;

    #[test]
    fn only_chosen_samples_come() {
        let ids: Arc<[u64]> = [3, 5, 8, 13, 21].into();
        let mut order = Chosen::new(EvalOrder::new(5, 2, 0, 1), ids);
        let mut job = Job::default();
        let batches: Vec<_> = std::iter::from_fn(|| order.fill(&mut job).then(|| job.ids.clone())).collect();
        assert_eq!(batches, [vec![3, 5], vec![8, 13], vec![21]]);
    }
}

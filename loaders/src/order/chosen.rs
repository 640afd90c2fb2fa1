//! An order over some of a split's samples.

use std::sync::Arc;

use crate::order::job::{Job, Order};

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

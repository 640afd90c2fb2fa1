//! Sums the gradients of a rank's workers in a binary tree over the worker numbers: workers 0 and 1, 2 and 3, then both
//! sums, and so on. MPI libraries often add the ranks in the same order (recursive doubling). So the float additions
//! are mostly the same if the same workers run on another number of ranks. For k workers, about log2(k) arenas hold
//! sums at the same time.
//!
//! With [`Gather::PerWorker`], which makes the sums bit-identical for any number of ranks, nothing is added here. Each
//! worker's gradients stay in their own arena until the ranks exchange them.

use std::ops::Range;

use backend::{Arena, Backend, Buffer, Error};

/// Identifies one of this rank's workers. Each worker computes a part of the training step's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    pub worker: usize,
    /// True for the rank's last worker of the step. After its pass, the sum over all workers is handed to the gradient
    /// exchange between the ranks.
    pub last: bool,
}

impl MicroBatch {
    /// The only micro-batch of a rank with a single worker.
    pub const ONLY: MicroBatch = MicroBatch { worker: 0, last: true };
}

/// How the gradients of a rank's workers are passed to the exchange between the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gather {
    /// A single sum over all workers of the rank.
    #[default]
    Summed,
    /// A separate buffer for each worker.
    PerWorker,
}

/// The sum of the gradients of `2^level` consecutive workers. `first` is the lowest worker number.
struct Branch<B: Backend> {
    first: usize,
    level: u32,
    sum: Arena<B>,
}

/// Collects the gradients of a rank's workers. With [`Gather::Summed`], `branches` has the sums that still wait for
/// their sibling in the tree. With [`Gather::PerWorker`], it has the gradients of each worker. `spare` has the free
/// arenas.
pub(super) struct Accumulator<B: Backend> {
    gather: Gather,
    branches: Vec<Branch<B>>,
    spare: Vec<Arena<B>>,
}

impl<B: Backend> Accumulator<B> {
    pub fn new() -> Self {
        Self { gather: Gather::Summed, branches: Vec::new(), spare: Vec::new() }
    }

    /// Allocates the arenas that the gradients of these workers of a rank need, in addition to the graph's own gradient
    /// arena.
    pub fn prepare(
        &mut self,
        backend: &B,
        buckets: &[usize],
        workers: Range<usize>,
        gather: Gather,
    ) -> Result<(), Error> {
        self.gather = gather;
        let needed = match gather {
            Gather::Summed => arenas(workers),
            Gather::PerWorker => workers.len().saturating_sub(1),
        };
        while self.spare.len() < needed {
            self.spare.push(Arena::new(backend, buckets)?);
        }
        Ok(())
    }

    /// Returns the number of allocated arenas. The graph's own arena, which the last worker uses, is not counted.
    pub fn kept(&self) -> usize {
        self.spare.len() + self.branches.len()
    }

    /// Returns an arena for the gradients of a worker other than the last. Allocates one if none is free.
    pub fn take(&mut self, backend: &B, buckets: &[usize]) -> Result<Arena<B>, Error> {
        self.spare.pop().map_or_else(|| Arena::new(backend, buckets), Ok)
    }

    /// Stores the gradients of a worker other than the last. With [`Gather::Summed`], also adds the sums of siblings in
    /// the tree, except in buckets for which `trains` returns false.
    pub fn push(
        &mut self,
        backend: &B,
        worker: usize,
        mut sum: Arena<B>,
        trains: impl Fn(usize) -> bool,
    ) -> Result<(), Error> {
        let (mut first, mut level) = (worker, 0);
        if self.gather == Gather::PerWorker {
            self.branches.push(Branch { first, level, sum });
            return Ok(());
        }
        while let Some(left) = self.branches.pop_if(|b| b.level == level && joins(b.first, level)) {
            let pairs = sum.buckets.iter_mut().zip(&left.sum.buckets).enumerate();
            for (_, (to, from)) in pairs.filter(|(bucket, _)| trains(*bucket)) {
                backend.add(to, from)?;
            }
            self.spare.push(left.sum);
            (first, level) = (left.first, level + 1);
        }
        self.branches.push(Branch { first, level, sum });
        Ok(())
    }

    pub fn gather(&self) -> Gather {
        self.gather
    }

    /// Returns the arenas that currently hold gradients.
    pub fn alive(&self) -> impl Iterator<Item = &Arena<B>> {
        self.branches.iter().map(|branch| &branch.sum)
    }

    /// Adds all earlier workers' gradients of a bucket to the last worker's. Does nothing if each worker's gradients
    /// are sent separately.
    pub fn add_to(&self, backend: &B, bucket: usize, last: &mut B::Buf) -> Result<(), Error> {
        let mut summed = self.branches.iter().rev().filter(|_| self.gather == Gather::Summed);
        summed.try_for_each(|branch| backend.add(last, &branch.sum.buckets[bucket]))
    }

    /// Returns the buffers of a finished bucket for the exchange: the sum of all workers, or each worker's gradients in
    /// order.
    pub fn collect(&mut self, bucket: usize, last: B::Buf) -> Vec<B::Buf> {
        let apart = self.branches.iter_mut().filter(|_| self.gather == Gather::PerWorker);
        apart.map(|branch| std::mem::take(&mut branch.sum.buckets[bucket])).chain(std::iter::once(last)).collect()
    }

    /// Puts a buffer that the exchange returned into any arena whose buffer for this bucket is missing.
    pub fn give_back(&mut self, bucket: usize, gradients: B::Buf) {
        let arenas = self.branches.iter_mut().map(|b| &mut b.sum).chain(&mut self.spare);
        if let Some(hole) = arenas.map(|arena| &mut arena.buckets[bucket]).find(|c| c.is_empty()) {
            *hole = gradients;
        }
    }

    /// Marks all arenas as free. Must be called after the last bucket of a step was handed to the exchange.
    pub fn clear(&mut self) {
        self.spare.extend(self.branches.drain(..).map(|b| b.sum));
    }
}

/// Returns true if the sum at this level that starts at worker `first` is a left child in the tree. It then waits for
/// its right sibling.
fn joins(first: usize, level: u32) -> bool {
    first.is_multiple_of(2 << level)
}

/// Returns the largest number of arenas that hold gradients at the same time with [`Gather::Summed`]. The arena of the
/// last worker is not counted.
fn arenas(workers: Range<usize>) -> usize {
    let (mut open, mut most): (Vec<(usize, u32)>, usize) = (Vec::new(), 0);
    for worker in workers.start..workers.end.saturating_sub(1) {
        most = most.max(open.len() + 1);
        let mut node = (worker, 0);
        while let Some(left) = open.pop_if(|b| b.1 == node.1 && joins(b.0, node.1)) {
            node = (left.0, node.1 + 1);
        }
        open.push(node);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::reference::{HostBuf, Reference};

    /// Accumulates the gradient `value(worker)` of each worker and returns the sum.
    fn sum(workers: Range<usize>, value: impl Fn(usize) -> f32) -> f32 {
        let mut tree = Accumulator::<Reference>::new();
        let arena = |w: usize| Arena { buckets: vec![HostBuf(vec![value(w)])] };
        for w in workers.start..workers.end - 1 {
            tree.push(&Reference, w, arena(w), |_| true).unwrap();
        }
        let mut last = HostBuf(vec![value(workers.end - 1)]);
        tree.add_to(&Reference, 0, &mut last).unwrap();
        let all = tree.collect(0, last);
        assert_eq!(all.len(), 1);
        all[0].0[0]
    }

    #[test]
    fn buffers_per_worker_come_in_order_at_every_step() {
        let mut apart = Accumulator::<Reference>::new();
        apart.prepare(&Reference, &[1, 2], 3..7, Gather::PerWorker).unwrap();
        for step in 0..3 {
            for worker in 3..6 {
                let mut arena = apart.take(&Reference, &[1, 2]).unwrap();
                assert_eq!(arena.buckets.iter().map(Buffer::len).collect::<Vec<_>>(), [1, 2]);
                arena.buckets[1].0.fill((10 * step + worker) as f32);
                apart.push(&Reference, worker, arena, |_| true).unwrap();
            }
            let mut last = HostBuf(vec![(10 * step + 6) as f32; 2]);
            apart.add_to(&Reference, 1, &mut last).unwrap();
            let all = apart.collect(1, last);
            apart.clear();
            let values: Vec<f32> = all.iter().map(|b| b.0[1]).collect();
            assert_eq!(values, [3, 4, 5, 6].map(|w| (10 * step + w) as f32));
            all.into_iter().take(3).for_each(|b| apart.give_back(1, b));
            assert_eq!(apart.kept(), 3);
        }
    }

    #[test]
    fn one_rank_adds_workers_in_the_same_tree_as_four_ranks() {
        let value = |w: usize| [1.0, 4e-8, 4e-8, 4e-8, 0.3, 0.1, 5e-8, 2.0][w];
        let pair = |a: usize| sum(a..a + 2, value);
        assert_eq!(sum(0..4, value), pair(0) + pair(2));
        assert_eq!(sum(0..8, value), (pair(0) + pair(2)) + (pair(4) + pair(6)));
        let in_a_row: f32 = (0..4).map(value).sum();
        assert_ne!(sum(0..4, value), in_a_row, "the values must tell the orders apart");
    }

    #[test]
    fn every_worker_is_added_once_with_logarithmic_memory() {
        for start in 0..9 {
            for n in 1..70 {
                let want: f32 = (start..start + n).map(|w| (w + 1) as f32).sum();
                assert_eq!(sum(start..start + n, |w| (w + 1) as f32), want);
                let bound = 2 * (usize::BITS - n.leading_zeros()) as usize;
                assert!(arenas(start..start + n) <= bound, "{start}, {n}: {}", arenas(start..start + n));
            }
        }
        assert_eq!([1, 2, 3, 4, 8, 64].map(|n| arenas(0..n)), [0, 1, 2, 2, 3, 6]);
    }
}

//! Scores a split: fixed logical batches, whole ones dealt to the ranks, every sample once, sums over all ranks.

use std::sync::Arc;

use crate::backend::{Backend, LossSums};
use crate::comm::Comm;
use crate::error::Error;
use crate::nn::{Batch, Graph};
use crate::train::agree::session::Session;
use crate::train::device_input::DeviceInput;
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::Activity;
use loaders::{EvalOrder, Options, Pipeline, Split};

/// The score of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Share whose best class is right.
    pub top1: f64,
    /// Share whose right class is among the best five.
    pub top5: f64,
    /// Mean loss, without label smoothing.
    pub loss: f64,
    /// Images.
    pub count: u64,
}

/// This rank's part of a score, then the sum over all ranks. Each batch's loss has a place of its own and all are added in the batches'
/// order: the sum has the same bits whichever rank had which batch. The counts are integers, exact in any order.
#[derive(Clone, Debug, Default)]
struct ScoreSums {
    top1: f64,
    top5: f64,
    count: f64,
    /// Ranks that received a request to stop.
    stop: f64,
    /// One a batch.
    losses: Vec<f64>,
}

impl ScoreSums {
    /// The numbers that travel, in the order of the fields.
    fn to_slots(&self) -> Vec<f64> {
        [&[self.top1, self.top5, self.count, self.stop], self.losses.as_slice()].concat()
    }

    fn from_slots(slots: &[f64]) -> Self {
        let (counts, losses) = slots.split_at(4);
        Self { top1: counts[0], top5: counts[1], count: counts[2], stop: counts[3], losses: losses.to_vec() }
    }

    /// Replaces them by their sums over all ranks. Collective.
    fn sum(&mut self, comm: &Comm) -> Result<(), Error> {
        let mut slots = self.to_slots();
        comm.run("sum of scores", |world| world.sum_f64(&mut slots))?;
        *self = Self::from_slots(&slots);
        Ok(())
    }

    /// The means, unless a rank received a request to stop.
    fn score(&self) -> Option<Score> {
        let mean = |sum: f64| sum / self.count.max(1.0);
        let loss = mean(self.losses.iter().sum());
        let score = Score { top1: mean(self.top1), top5: mean(self.top5), loss, count: self.count as u64 };
        (self.stop == 0.0).then_some(score)
    }
}

/// What to score, and how.
#[derive(Clone)]
pub struct Evaluation {
    /// The images.
    pub split: Arc<Split>,
    /// From a record to an input.
    pub pipeline: Pipeline,
    /// Images a logical batch: the score must not depend on the number of ranks, so neither does this.
    pub batch: usize,
    /// How the loader runs.
    pub options: Options,
}

impl Evaluation {
    /// Batch sizes that will come up on some rank.
    pub fn sizes(&self) -> Vec<usize> {
        let tail = (self.split.len() % self.batch as u64) as usize;
        let full = (self.split.len() >= self.batch as u64).then_some(self.batch);
        full.into_iter().chain((tail > 0).then_some(tail)).collect()
    }

    /// Runs over this rank's batches and sums over all ranks; nothing if any rank received a request to stop before its last batch.
    pub fn run<B: Backend>(
        &self,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
    ) -> Result<Option<Score>, Error> {
        let (rank, ranks) = (session.world.rank, session.world.size);
        let order = EvalOrder::new(self.split.len(), self.batch, rank, ranks);
        let mut input = DeviceInput::new(graph.backend(), &self.pipeline);
        let mut loader = input.start(&self.split, &self.pipeline, Box::new(order), self.options)?;
        let batches = self.split.len().div_ceil(self.batch as u64) as usize;
        let mut sums = ScoreSums { losses: vec![0.0; batches], ..ScoreSums::default() };
        session.watch.set_activity(Activity::Scoring { batch: 0 });
        while let Some(batch) = loader.next()? {
            session.watch.set_activity(Activity::Scoring { batch: batch.step() });
            let one = Batch { images: input.input(&batch), labels: batch.labels(), ids: batch.ids(), epoch: 0 };
            let LossSums { loss, top1, top5, count } = graph.evaluate(one, 0.0)?;
            sums.top1 += top1 as f64;
            sums.top5 += top5 as f64;
            sums.count += count as f64;
            sums.losses[batch.step() as usize] = loss;
            if stop.requested() {
                sums.stop = 1.0;
                break;
            }
        }
        sums.sum(&session.comm)?;
        Ok(sums.score())
    }
}

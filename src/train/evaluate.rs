//! Scores a split: fixed logical batches, whole ones dealt to the ranks, every sample once, sums over all ranks.

use std::sync::Arc;

use crate::backend::{Backend, LossSums};
use crate::error::Error;
use crate::nn::{Batch, Graph};
use crate::train::agree::session::Session;
use crate::train::device_input::Feed;
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::Activity;
use loaders::{EvalOrder, Options, Pipeline, Split};

/// Hits among the first one and five classes, images, and ranks that were told to stop.
const COUNTS: usize = 4;

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

    /// Runs over this rank's batches and sums over all ranks; nothing if any rank was told to stop before its last batch.
    pub fn run<B: Backend>(
        &self,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
    ) -> Result<Option<Score>, Error> {
        let (rank, ranks) = (session.world.rank, session.world.size);
        let order = EvalOrder::new(self.split.len(), self.batch, rank, ranks);
        let mut feed = Feed::new(graph.backend(), &self.pipeline);
        let mut loader = feed.start(&self.split, &self.pipeline, Box::new(order), self.options)?;
        // Each batch's loss has a place of its own and all are added in the batches' order: the sum has the same bits
        // whichever rank had which batch. The counts are whole numbers, exact in any order.
        let mut values = vec![0.0; COUNTS + self.split.len().div_ceil(self.batch as u64) as usize];
        session.watch.set_activity(Activity::Scoring { batch: 0 });
        while let Some(batch) = loader.next()? {
            session.watch.set_activity(Activity::Scoring { batch: batch.step() });
            let one = Batch { images: feed.input(&batch), labels: batch.labels(), ids: batch.ids(), epoch: 0 };
            let LossSums { loss, top1, top5, count } = graph.evaluate(one, 0.0)?;
            values.iter_mut().zip([top1, top5, count]).for_each(|(sum, n)| *sum += n as f64);
            values[COUNTS + batch.step() as usize] = loss;
            if stop.requested() {
                values[COUNTS - 1] = 1.0;
                break;
            }
        }
        let values = session.comm.run("sum of scores", move |world| {
            world.sum_f64(&mut values)?;
            Ok(values)
        })?;
        let ([top1, top5, count], losses) = ([values[0], values[1], values[2]], &values[COUNTS..]);
        if values[COUNTS - 1] > 0.0 {
            return Ok(None);
        }
        let share = |sum: f64| sum / count.max(1.0);
        let loss = share(losses.iter().sum());
        Ok(Some(Score { top1: share(top1), top5: share(top5), loss, count: count as u64 }))
    }
}

//! What a scoring notes of each image beside the sums, and how it comes to rank 0.

use crate::comm::Comm;
use crate::error::Error;
use crate::report::predictions::{Outcome, Predictions, Ranking, Softmax};

/// Probabilities of a whole split that are kept for average precisions, over all ranks: 1 GiB.
const MOST_KEPT: u64 = 1 << 28;

/// What is wanted of a scoring beside the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    Score,
    /// What the network made of each image.
    Outcomes,
    /// Average precisions, too.
    Precisions,
}

/// Collects one rank's part.
pub(super) struct Collector {
    classes: usize,
    /// Encoded outcomes.
    outcomes: Vec<u8>,
    logs: Option<Logs>,
}

/// Log-probabilities of all classes, a row an image.
#[derive(Default)]
struct Logs {
    labels: Vec<u32>,
    values: Vec<f32>,
}

impl Collector {
    /// Of images of so many classes; none where only the score is wanted.
    pub fn new(detail: Detail, classes: usize, images: u64) -> Option<Self> {
        let fits = images.saturating_mul(classes as u64) <= MOST_KEPT;
        let logs = (detail == Detail::Precisions && fits).then(Logs::default);
        (detail != Detail::Score).then(|| Self { classes, outcomes: Vec::new(), logs })
    }

    /// Adds images with their classes and scores, a row of scores each.
    pub fn add(&mut self, ids: &[u64], labels: &[u32], scores: &[f32]) {
        for ((id, label), row) in ids.iter().zip(labels).zip(scores.chunks_exact(self.classes.max(1))) {
            let softmax = Softmax::of(row);
            Outcome::new(*id, *label, row, softmax).write(&mut self.outcomes);
            if let Some(logs) = &mut self.logs {
                logs.labels.push(*label);
                logs.values.extend(row.iter().map(|score| softmax.log(*score) as f32));
            }
        }
    }

    /// Brings all together on rank 0; nothing on others. Collective.
    pub fn gather(self, comm: &Comm) -> Result<Option<Predictions>, Error> {
        let Self { classes, outcomes, logs } = self;
        let precisions = logs.map(|logs| logs.precisions(comm, classes)).transpose()?;
        let all = comm.run("gathering of predictions", move |world| world.gather(&outcomes))?;
        let all = all.map(|ranks| ranks.iter().flat_map(|bytes| Outcome::read(bytes)).collect());
        Ok(all.map(|outcomes| Predictions::new(classes, outcomes, precisions)))
    }
}

impl Logs {
    /// Average precisions of all classes over all ranks. Collective.
    fn precisions(&self, comm: &Comm, classes: usize) -> Result<Vec<Option<f64>>, Error> {
        let rows = || self.values.chunks_exact(classes.max(1));
        let mut own = Vec::new();
        for (label, row) in self.labels.iter().zip(rows()) {
            own.extend(label.to_le_bytes());
            own.extend(row.get(*label as usize).copied().unwrap_or(f32::NAN).to_le_bytes());
        }
        let all = comm.run("probabilities of right classes", |world| {
            let mut all = world.gather(&own)?.map_or_else(Vec::new, |all| all.concat());
            world.broadcast(&mut all, 0)?;
            Ok(all)
        })?;
        let pair = |bytes: &[u8; 8]| {
            let [a, b, c, d, rest @ ..] = *bytes;
            (u32::from_le_bytes([a, b, c, d]), f32::from_le_bytes(rest))
        };
        let ranking = Ranking::new(classes, all.as_chunks().0.iter().map(pair));
        let mut counts = ranking.counts();
        rows().for_each(|row| ranking.add(&mut counts, row));
        comm.run("sum of ranks of images", |world| world.sum_u64(&mut counts))?;
        Ok(ranking.precisions(&counts))
    }
}

//! What a scoring notes of each image beside the sums, and how it comes to rank 0.

use comm::Comm;
use loaders::LabelSets;
use report::predictions::{Outcome, Predictions, Ranking, Softmax};

use crate::error::Error;

/// Probabilities of a whole split that are kept for average precisions, over all ranks: 1 GiB.
const MOST_KEPT: u64 = 1 << 27;

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
    logs: Option<Ranks>,
}

/// What ranks the images for each class: log-probabilities or scores of all classes, a row an image.
#[derive(Default)]
pub(super) struct Ranks {
    /// The classes of each image.
    sets: LabelSets,
    values: Vec<f64>,
}

impl Collector {
    /// Of images of so many classes; none where only the score is wanted.
    pub fn new(detail: Detail, classes: usize, images: u64) -> Option<Self> {
        let logs = Ranks::fitting(classes, images).filter(|_| detail == Detail::Precisions);
        (detail != Detail::Score).then(|| Self { classes, outcomes: Vec::new(), logs })
    }

    /// Adds images with their classes and scores, a row of scores each.
    pub fn add(&mut self, ids: &[u64], labels: &[u32], scores: &[f32]) {
        for ((id, label), row) in ids.iter().zip(labels).zip(scores.chunks_exact(self.classes.max(1))) {
            let softmax = Softmax::of(row);
            Outcome::new(*id, *label, row, softmax).write(&mut self.outcomes);
            if let Some(logs) = &mut self.logs {
                logs.add(&[*label], row.iter().map(|score| softmax.log(*score)));
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

/// Whether average precisions of so many classes and images are computed.
pub fn ranks_fit(classes: usize, images: u64) -> bool {
    images.saturating_mul(classes as u64) <= MOST_KEPT
}

impl Ranks {
    /// Of no images yet; none where the values of all would take too much memory.
    pub fn fitting(classes: usize, images: u64) -> Option<Self> {
        ranks_fit(classes, images).then(Self::default)
    }

    /// Adds an image of these classes.
    pub fn add(&mut self, classes: &[u32], values: impl Iterator<Item = f64>) {
        self.sets.push(classes.iter().copied());
        self.values.extend(values);
    }

    /// Average precisions of all classes over all ranks. Collective.
    pub fn precisions(&self, comm: &Comm, classes: usize) -> Result<Vec<Option<f64>>, Error> {
        let own = self.own(classes);
        let all = comm.run("probabilities of right classes", |world| {
            let mut all = world.gather(&own)?.map_or_else(Vec::new, |all| all.concat());
            world.broadcast(&mut all, 0)?;
            Ok(all)
        })?;
        let ranking = ranking(classes, &all);
        let mut counts = self.counts(&ranking, classes);
        comm.run("sum of ranks of images", |world| world.sum_u64(&mut counts))?;
        Ok(ranking.precisions(&counts))
    }

    /// Each class of each image with its value, as bytes.
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

    /// The places of this rank's images.
    fn counts(&self, ranking: &Ranking, classes: usize) -> Vec<u64> {
        let mut counts = ranking.counts();
        self.values.chunks_exact(classes.max(1)).for_each(|row| ranking.add(&mut counts, row));
        counts
    }

    /// What [`Ranks::precisions`] gives on one rank.
    #[cfg(test)]
    pub fn alone(&self, classes: usize) -> Vec<Option<f64>> {
        let ranking = ranking(classes, &self.own(classes));
        ranking.precisions(&self.counts(&ranking, classes))
    }
}

/// Of the classes of all images with their values.
fn ranking(classes: usize, own: &[u8]) -> Ranking {
    let pair = |bytes: &[u8; 12]| {
        let [a, b, c, d, rest @ ..] = *bytes;
        (u32::from_le_bytes([a, b, c, d]), f64::from_le_bytes(rest))
    };
    Ranking::new(classes, own.as_chunks().0.iter().map(pair))
}

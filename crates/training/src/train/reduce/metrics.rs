//! The metrics of a step, which are summed over all ranks together with the gradients: loss, correct predictions, batch-norm statistics,
//! requests, and the times of each rank. The sum is one small allreduce of f64. With an integer codec, each worker's metrics are converted
//! to 64-bit integers before they are added, so that the sum does not depend on the order.

use backend::{Backend, LossSums};
use engine::{Gather, Graph};
use loaders::random::philox4x32;

use crate::train::observe::timing::RankTiming;

/// The requests of a rank at the end of a step. After the sum over the ranks, a field is true if any rank made this
/// request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// End the run early.
    pub stop: bool,
    /// Write a checkpoint.
    pub save: bool,
}

impl Requests {
    /// Returns the union of both requests.
    pub fn or(self, other: Self) -> Self {
        Self { stop: self.stop | other.stop, save: self.save | other.save }
    }
}

/// Lengths of the sections in a metrics vector.
#[derive(Clone, Copy, Debug)]
pub struct MetricsLayout {
    /// Number of running statistics: mean and variance of each channel.
    statistics: usize,
    norms: usize,
    /// 1 if images have weights, otherwise 0.
    weights: usize,
    ranks: usize,
    /// Selects whether the metrics of a rank's workers are added, or stay separate until the sum over the ranks.
    gather: Gather,
}

/// The metrics of a worker or a rank, or their sum over all ranks.
#[derive(Clone, Debug, PartialEq)]
struct Metrics {
    loss: f64,
    top1: f64,
    top5: f64,
    count: f64,
    /// Digest of the ids of all samples and of their rows in the workers' batches.
    samples: f64,
    /// Number of ranks that request a stop.
    stop: f64,
    /// Number of ranks that request a checkpoint.
    save: f64,
    /// Batch statistics, summed over the workers, in the layout of the running statistics.
    statistics: Vec<f64>,
    /// For each batch norm, the number of values per channel that its statistics cover.
    norms: Vec<f64>,
    /// Sum of the images' weights. Empty if they have no weights.
    weights: Vec<f64>,
    /// The times of each rank. Before the sum, a rank sets only its own entry.
    timings: Vec<RankTiming>,
}

impl Metrics {
    /// Number of values in a vector before the statistics.
    const SCALARS: usize = 7;

    fn zero(layout: &MetricsLayout) -> Self {
        let slots = Self::SCALARS + layout.statistics + layout.norms + layout.weights + 3 * layout.ranks;
        Self::from_slots(layout, &vec![0.0; slots])
    }

    /// Returns the values to sum, in the order of the fields.
    fn to_slots(&self) -> Vec<f64> {
        let mut slots = vec![self.loss, self.top1, self.top5, self.count, self.samples, self.stop, self.save];
        slots.extend(self.statistics.iter().chain(&self.norms).chain(&self.weights));
        slots.extend(self.timings.iter().flat_map(|t| [t.data, t.comm, t.step]));
        slots
    }

    fn from_slots(layout: &MetricsLayout, slots: &[f64]) -> Self {
        let (scalars, rest) = slots.split_at(Self::SCALARS);
        let (statistics, rest) = rest.split_at(layout.statistics);
        let (norms, rest) = rest.split_at(layout.norms);
        let (weights, timings) = rest.split_at(layout.weights);
        let timing = |t: &[f64]| RankTiming { data: t[0], comm: t[1], step: t[2] };
        Self {
            loss: scalars[0],
            top1: scalars[1],
            top5: scalars[2],
            count: scalars[3],
            samples: scalars[4],
            stop: scalars[5],
            save: scalars[6],
            statistics: statistics.to_vec(),
            norms: norms.to_vec(),
            weights: weights.to_vec(),
            timings: timings.chunks_exact(3).map(timing).collect(),
        }
    }
}

/// The metrics of a step. The sum over the ranks replaces this rank's values by the values of all ranks.
#[derive(Clone, Debug)]
pub struct StepMetrics {
    layout: MetricsLayout,
    /// This rank's metrics. They include the metrics of its workers, unless these stay separate. After the sum, the
    /// sums over all ranks.
    first: Metrics,
    /// The metrics of each worker, if they stay separate.
    workers: Vec<Metrics>,
}

impl MetricsLayout {
    pub fn new<B: Backend>(graph: &Graph<B>, ranks: usize, gather: Gather) -> Self {
        Self { statistics: graph.running().len(), norms: graph.norms().len(), weights: 0, ranks, gather }
    }

    /// Sets whether images have weights, so that the vector contains the sum of the weights.
    pub fn weighted(self, weighted: bool) -> Self {
        Self { weights: usize::from(weighted), ..self }
    }

    pub fn zero(&self) -> StepMetrics {
        StepMetrics { layout: *self, first: Metrics::zero(self), workers: Vec::new() }
    }
}

impl StepMetrics {
    pub fn from_values(layout: MetricsLayout, values: &[f64]) -> Self {
        Self { layout, first: Metrics::from_slots(&layout, values), workers: Vec::new() }
    }

    /// Returns the vectors to sum: this rank's own vector, and a vector for each worker if they stay separate.
    pub fn to_vectors(&self) -> Vec<Vec<f64>> {
        std::iter::once(&self.first).chain(&self.workers).map(Metrics::to_slots).collect()
    }

    pub fn layout(&self) -> MetricsLayout {
        self.layout
    }

    /// Removes the batch statistics. They are not needed after [`update_running`](Self::update_running), and they are most of the values.
    pub fn drop_statistics(&mut self) {
        (self.layout.statistics, self.layout.norms) = (0, 0);
        for metrics in self.workers.iter_mut().chain([&mut self.first]) {
            (metrics.statistics, metrics.norms) = (Vec::new(), Vec::new());
        }
    }

    /// Adds the loss and correct predictions of a worker, its batch statistics, and the [`digest`] of its samples.
    pub fn add<B: Backend>(&mut self, graph: &Graph<B>, sums: LossSums, digest: u64) {
        if self.layout.gather == Gather::PerWorker {
            self.workers.push(Metrics::zero(&self.layout));
        }
        let metrics = self.workers.last_mut().unwrap_or(&mut self.first);
        metrics.loss += sums.loss;
        metrics.top1 += sums.top1 as f64;
        metrics.top5 += sums.top5 as f64;
        metrics.count += sums.count as f64;
        metrics.samples += digest as f64;
        if sums.count > 0 {
            graph.pool_statistics(&mut metrics.statistics, &mut metrics.norms);
        }
    }

    /// Adds the sum of the image weights for the worker that was added last, if images have weights.
    pub fn add_weight(&mut self, weight: Option<f64>) {
        let metrics = self.workers.last_mut().unwrap_or(&mut self.first);
        metrics.weights.iter_mut().zip(weight).for_each(|(sum, weight)| *sum += weight);
    }

    /// Returns the number that the loss is divided by: the number of images, or the sum of their weights.
    pub fn total(&self) -> f64 {
        self.first.weights.first().copied().unwrap_or(self.first.count)
    }

    /// Sets this rank's times: the wait for the loader in this step, and the other times of the previous step.
    pub fn set_timing(&mut self, rank: usize, timing: RankTiming) {
        self.first.timings[rank] = timing;
    }

    pub fn timings(&self) -> &[RankTiming] {
        &self.first.timings
    }

    pub fn set_requests(&mut self, requests: Requests) {
        let number = |request: bool| f64::from(u8::from(request));
        (self.first.stop, self.first.save) = (number(requests.stop), number(requests.save));
    }

    pub fn requests(&self) -> Requests {
        Requests { stop: self.first.stop > 0.0, save: self.first.save > 0.0 }
    }

    /// Returns the loss, summed over all ranks.
    pub fn loss(&self) -> f64 {
        self.first.loss
    }

    /// Returns the loss of this rank, before the sum over all ranks.
    pub fn own_loss(&self) -> f64 {
        std::iter::once(&self.first).chain(&self.workers).map(|metrics| metrics.loss).sum()
    }

    /// Sets the loss to NaN, which tells all ranks that a parameter or running statistic is not finite.
    pub fn spoil(&mut self) {
        self.first.loss = f64::NAN;
    }

    /// Returns loss, correct predictions and number of images. If images have weights, the loss is their weighted mean times the number of
    /// images.
    pub fn loss_sums(&self) -> LossSums {
        let Metrics { loss, top1, top5, count, ref weights, .. } = self.first;
        let weighted = |loss: f64, total: &f64| if *total > 0.0 { loss * count / total } else { loss };
        let loss = weights.iter().fold(loss, weighted);
        LossSums { loss, top1: top1 as u64, top5: top5 as u64, count: count as u64 }
    }

    pub fn samples(&self) -> u64 {
        self.first.samples as u64
    }

    /// Moves the running statistics towards the statistics of this step over all workers. S is a sum over workers, r the running mean, and
    /// a worker has n values with mean r + d and sum of squared deviations M2. Then the mean is r + S(n d)/S(n), and the variance is S(M2 +
    /// n d^2)/S(n) - (S(n d)/S(n))^2, times N/(N-1) with N = S(n).
    ///
    /// For one worker this equals PyTorch. The offsets from r keep precision if |mean| is much larger than the deviation. A channel with a
    /// single value in the whole step has no variance, so its running variance does not change. Returns true if all statistics are finite.
    pub fn update_running<B: Backend>(&self, graph: &mut Graph<B>) -> bool {
        let norms = graph.norms().to_vec();
        let momentum: Vec<f64> = norms.iter().map(|n| momentum(graph, n.node)).collect();
        let Metrics { statistics, norms: counts, .. } = &self.first;
        let running = graph.running_mut();
        for ((place, &n), m) in norms.iter().zip(counts).zip(momentum).filter(|((_, n), _)| **n > 0.0) {
            let (c, at) = (place.channels, place.offset);
            for i in at..at + c {
                let offset = statistics[i] / n;
                let var = statistics[i + c] / n - offset * offset;
                // not `max`, which would hide NaN
                let var = if var < 0.0 { 0.0 } else { var * (n / (n - 1.0)) };
                let old = f64::from(running[i]);
                running[i] = (old + m * offset) as f32;
                // a single value has no variance
                if n > 1.0 {
                    running[i + c] = ((1.0 - m) * f64::from(running[i + c]) + m * var) as f32;
                }
            }
        }
        running.iter().all(|r| r.is_finite())
    }
}

/// Returns a digest of a worker's samples and their rows in its batch.
pub fn digest(worker: usize, ids: &[u64]) -> u64 {
    // each term has 32 bits, so the sum is exact in f64 for batches below 2^21
    let hash = |(i, &id): (usize, &u64)| philox4x32([id as u32, (id >> 32) as u32, worker as u32, i as u32], [0, 0])[0];
    ids.iter().enumerate().map(|place| u64::from(hash(place))).sum()
}

fn momentum<B: Backend>(graph: &Graph<B>, node: usize) -> f64 {
    graph.net().nodes[node].op.statistics_momentum().map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_as_they_were_and_every_field_has_its_own() {
        let layout = MetricsLayout { statistics: 4, norms: 1, weights: 0, ranks: 2, gather: Gather::Summed };
        let slots: Vec<f64> = (0..Metrics::SCALARS + 4 + 1 + 6).map(|i| i as f64).collect();
        let metrics = Metrics::from_slots(&layout, &slots);
        assert_eq!(metrics.to_slots(), slots);
        assert_eq!((metrics.loss, metrics.save, metrics.norms[0], metrics.timings[1].step), (0.0, 6.0, 11.0, 17.0));
        assert_eq!(Metrics::zero(&layout).to_slots(), vec![0.0; slots.len()]);
    }

    #[test]
    fn metrics_without_statistics_have_only_the_other_values() {
        let layout = MetricsLayout { statistics: 4, norms: 1, weights: 1, ranks: 2, gather: Gather::Summed };
        let slots: Vec<f64> = (0..Metrics::SCALARS + 4 + 1 + 1 + 6).map(|i| i as f64).collect();
        let mut metrics = StepMetrics::from_values(layout, &slots);
        metrics.drop_statistics();
        let expected = [&slots[..Metrics::SCALARS], &slots[Metrics::SCALARS + 4 + 1..]].concat();
        assert_eq!(metrics.to_vectors(), std::slice::from_ref(&expected));
        assert_eq!(StepMetrics::from_values(metrics.layout(), &expected).first, metrics.first);
    }

    #[test]
    fn weighted_losses_are_divided_by_the_sum_of_the_weights() {
        let layout = MetricsLayout { statistics: 2, norms: 1, weights: 0, ranks: 1, gather: Gather::PerWorker };
        let mut metrics = layout.weighted(true).zero();
        (metrics.first.loss, metrics.first.count) = (12.0, 4.0);
        metrics.add_weight(Some(1.5));
        metrics.add_weight(Some(0.5));
        assert_eq!((metrics.total(), metrics.loss_sums().loss, metrics.loss_sums().count), (2.0, 24.0, 4));
        let slots = metrics.to_vectors().concat();
        assert_eq!((slots.len(), slots[Metrics::SCALARS + 3]), (Metrics::SCALARS + 2 + 1 + 1 + 3, 2.0));
        let mut plain = layout.zero();
        plain.first.count = 4.0;
        plain.add_weight(None);
        assert_eq!((plain.total(), plain.to_vectors()[0].len()), (4.0, Metrics::SCALARS + 2 + 1 + 3));
    }
}

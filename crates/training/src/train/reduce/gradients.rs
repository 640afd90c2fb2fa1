//! Sums the gradients and metrics of a step over all ranks. Each bucket of gradients is summed as soon as backward has completed it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::Backend;
use comm::Comm;
use comm::codec::{FLOAT, Key, fixed};
use engine::{Gather, Graph};

use crate::error::Error;
use crate::train::observe::notices;
use crate::train::observe::trace::{Lane, Trace};
use crate::train::reduce::bucket_sum::{self, BucketSum, Costs, Pending, SumStep, Summed, to_bytes};
use crate::train::reduce::group::Group;
use crate::train::reduce::metrics::StepMetrics;
use crate::train::reduce::plan::{MEASURED, Measured, ReducePlan};
use crate::train::reduce::transport::{Transport, TransportPlan};

/// Added to the step number in the key of random draws, for the second gradient of a step.
const SECOND_GRADIENT: u64 = 1 << 31;

const METRICS: &str = "sum of losses and statistics";

/// Sums gradients and metrics in every step.
pub struct GradientSum<B: Backend> {
    comm: Comm,
    ranks: usize,
    /// Indexes of this rank's workers.
    mine: Range<usize>,
    workers: usize,
    codec: &'static str,
    integer: bool,
    /// True if the codec uses error feedback.
    feedback: bool,
    gather: Gather,
    seed: u64,
    /// If set, a bucket with values that are not finite becomes NaN, and the device skips the step. Otherwise this is an error.
    scaled: bool,
    /// True if the MPI thread sums buckets during backward. It is equal on all ranks. False with NCCL, because its sums are only enqueued.
    overlap: bool,
    /// The sum of each bucket. `None` while it is in progress.
    sums: Vec<Option<Box<dyn BucketSum<B>>>>,
    step: u64,
    /// True while the second gradient of a step is computed.
    is_second: bool,
    /// This rank's part of the loss in the current step.
    loss: f64,
    /// True if this step counts the encoded gradients that are 0. `zeros` has the counts by parameter, over this rank's workers.
    counts: bool,
    zeros: BTreeMap<u16, u64>,
    /// Complete buckets that do not need to be summed over ranks.
    local: Vec<(usize, Vec<B::Buf>)>,
    pending: Vec<(usize, Pending<B>)>,
    waited: Duration,
    costs: Costs,
    measured: Measured,
    trace: Trace,
    /// The group of devices that sum the buckets. `None` if MPI sums them.
    group: Option<Arc<Group<B>>>,
}

impl<B: Backend> GradientSum<B> {
    /// Creates the planned sums. `mine` are the indexes of this rank's workers.
    pub fn new(
        comm: Comm,
        ranks: usize,
        TransportPlan { overlap, transport }: TransportPlan<B>,
        mine: Range<usize>,
        plan: &mut ReducePlan<B>,
    ) -> Self {
        Self {
            comm,
            ranks,
            mine,
            workers: plan.settings.workers,
            codec: plan.entry.name,
            integer: plan.entry.integer,
            feedback: plan.settings.error_feedback,
            gather: plan.gather(),
            seed: plan.seed,
            scaled: plan.scaled,
            // sums by the devices are enqueued at once, so another thread would have no work
            overlap: overlap && !matches!(transport, Transport::Nccl(_)),
            group: transport.group(),
            sums: transport.carry(std::mem::take(&mut plan.sums)).into_iter().map(Some).collect(),
            step: 0,
            is_second: false,
            loss: 0.0,
            counts: false,
            zeros: BTreeMap::new(),
            local: Vec::new(),
            pending: Vec::new(),
            waited: Duration::ZERO,
            costs: Costs::default(),
            measured: Measured::default(),
            trace: Trace::default(),
        }
    }

    /// From now on, records the sum of each bucket in `trace`.
    pub fn follow(&mut self, trace: &Trace) {
        self.trace = trace.clone();
    }

    /// Begins the step after `done` earlier ones. With `counts` set, counts encoded gradients that are 0.
    pub fn begin(&mut self, done: u64, counts: bool) {
        (self.step, self.is_second, self.counts) = (done, false, counts);
        self.costs = Costs::default();
    }

    /// Begins the second gradient of the same step. It uses other random draws, because it depends on the first gradient. With the same
    /// draws, its rounding would be biased.
    pub fn begin_second_gradient(&mut self) {
        self.is_second = true;
        // only the second gradient is counted
        self.zeros.clear();
    }

    /// Returns, for each parameter, the fraction of encoded gradients that were 0 in the step that counted them. It is `None` for
    /// parameters that are not encoded, which are the same on all ranks. `elements` has the length of each parameter. Collective.
    pub fn zero_codes(&mut self, elements: &[usize]) -> Result<Vec<Option<f64>>, Error> {
        let own = std::mem::take(&mut self.zeros);
        let mut sums: Vec<u64> = (0..elements.len()).map(|k| own.get(&(k as u16)).copied().unwrap_or(0)).collect();
        if self.ranks > 1 {
            self.comm.run("sum of the numbers of gradients encoded as 0", |world| world.sum_u64(&mut sums))?;
        }
        let share = |(k, sum): (usize, u64)| {
            let codes = elements[k] as f64 * self.workers as f64;
            own.contains_key(&(k as u16)).then(|| sum as f64 / codes)
        };
        Ok(sums.into_iter().enumerate().map(share).collect())
    }

    /// Returns true if buckets must be summed. This is the case if there are two or more ranks, or if the codec encodes
    /// the gradients of each worker separately.
    pub fn must_sum_buckets(&self) -> bool {
        self.ranks > 1 || self.gather == Gather::PerWorker
    }

    /// Starts the sum of a bucket whose gradients are complete.
    pub fn ready(&mut self, bucket: usize, gradients: Vec<B::Buf>) -> Result<(), Error> {
        if !self.must_sum_buckets() {
            self.local.push((bucket, gradients));
            return Ok(());
        }
        let twice = || Error::Failed(format!("gradient bucket {bucket} was handed over twice in one step"));
        let sum = self.sums[bucket].take().ok_or_else(twice)?;
        let step = SumStep {
            done: self.step,
            key: Key { seed: self.seed, step: self.step + if self.is_second { SECOND_GRADIENT } else { 0 } },
            worker: self.mine.end - gradients.len(),
            scaled: self.scaled,
            compare: self.codec != FLOAT.name && self.ranks > 1 && MEASURED.contains(&self.step),
            count: self.counts,
        };
        self.pending.push((bucket, sum.start(&self.comm, gradients, step, self.overlap)?));
        Ok(())
    }

    /// Waits for the sums of the step's gradients and gives the gradients back to the graph. `own_loss` is this rank's part of the loss,
    /// for the message about a gradient that is not finite.
    pub fn finish_gradients(&mut self, graph: &mut Graph<B>, own_loss: f64) -> Result<(), Error> {
        self.loss = own_loss;
        self.local.drain(..).for_each(|(bucket, gradients)| graph.put(bucket, gradients));
        for (bucket, pending) in std::mem::take(&mut self.pending) {
            let lane = if matches!(pending, Pending::Queued(_)) { Lane::Mpi } else { Lane::Compute };
            let wait = Instant::now();
            let summed = pending.finish(&self.comm);
            // the time before the sum began is this rank's own, while its device computed
            let begun = summed.as_ref().map_or(wait, |summed| wait.max(summed.timed.start));
            self.waited += begun.elapsed();
            if lane == Lane::Mpi {
                self.trace.part("wait", format!("wait for bucket {bucket}"), Lane::Compute, wait, wait.elapsed());
            }
            self.summed(graph, bucket, summed, lane)?;
        }
        Ok(())
    }

    /// Returns an error if a sum that was only enqueued has failed. The sum belongs to the step after the first `done` steps, and the
    /// device must have finished this step. All ranks get the same result and call this together. `own_loss` is as for
    /// [`GradientSum::finish_gradients`].
    pub fn check(&mut self, done: u64, own_loss: f64) -> Result<(), Error> {
        // values that are not finite only make the device skip the step
        let failed = self.sums.iter_mut().flatten().find_map(|sum| sum.check(done).err()).filter(|_| !self.scaled);
        match failed {
            Some(error @ bucket_sum::Error::NotFinite { .. }) => Err(notices::in_codec(&self.comm, &error, own_loss)),
            other => Ok(other.map_or(Ok(()), Err)?),
        }
    }

    /// Sums a step's metrics over the ranks. The step may be older than the last gradients. All ranks must pass metrics of the same step.
    pub fn sum_metrics(&mut self, metrics: &StepMetrics) -> Result<StepMetrics, Error> {
        let wait = Instant::now();
        let sums = self.sum(metrics.to_vectors())?;
        self.trace.part("wait", METRICS, Lane::Compute, wait, wait.elapsed());
        self.waited += wait.elapsed();
        Ok(StepMetrics::from_values(metrics.layout(), &sums))
    }

    /// Sums the image weights in a step over the ranks. `own` has a value for each pass on this rank. With an integer codec, the result is
    /// bit-identical to the sum of weights in the metrics.
    pub fn sum_weights(&mut self, own: &[f64]) -> Result<f64, Error> {
        let wait = Instant::now();
        let vectors = std::iter::once(0.0).chain(own.iter().copied()).map(|weight| vec![weight]).collect();
        let sums = self.sum(vectors)?;
        self.waited += wait.elapsed();
        Ok(sums.first().copied().unwrap_or_default())
    }

    /// Gives the summed bucket back to the graph and adds its costs. If the sum failed, returns the error.
    fn summed(
        &mut self,
        graph: &mut Graph<B>,
        bucket: usize,
        summed: Result<Summed<B>, bucket_sum::Error>,
        lane: Lane,
    ) -> Result<(), Error> {
        let Summed { gradients, sum, timed } = match summed {
            Err(error @ bucket_sum::Error::NotFinite { .. }) => {
                return Err(notices::in_codec(&self.comm, &error, self.loss));
            }
            other => other?,
        };
        let (mut at, costs) = (timed.start, timed.costs);
        self.zeros.extend(timed.zeros.iter().map(|count| (count.parameter, count.zeros)));
        for (kind, took) in [("encode", costs.encode), ("wire", costs.wire), ("decode", costs.decode)] {
            self.trace.part(kind, format!("{kind} bucket {bucket}"), lane, at, took);
            at += took;
        }
        graph.put(bucket, gradients);
        self.sums[bucket] = Some(sum);
        self.costs += costs;
        Ok(())
    }

    /// Returns the sum of the vectors over all ranks. With an integer codec the sum must not depend on the order of addition, so the values
    /// are added as integers. The first vector of each rank holds the rank's own values. The other vectors hold the values of its workers,
    /// if they stay separate.
    fn sum(&self, vectors: Vec<Vec<f64>>) -> Result<Vec<f64>, comm::Error> {
        if self.integer {
            return self.comm.run(METRICS, |world| fixed::sum(world, &vectors, 2 * self.workers));
        }
        let mut vectors = vectors.into_iter();
        let mut sum = vectors.next().unwrap_or_default();
        vectors.for_each(|vector| sum.iter_mut().zip(vector).for_each(|(s, x)| *s += x));
        if self.ranks > 1 {
            self.comm.run(METRICS, |world| world.sum_f64(&mut sum))?;
        }
        Ok(sum)
    }

    /// Gathers the residuals of error feedback. The result on rank 0 has the bytes of each rank: the residuals of its workers' buckets,
    /// worker by worker. Empty without error feedback. Collective.
    pub fn gather_residuals(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        if !self.feedback {
            return Ok(Vec::new());
        }
        let mut own = Vec::new();
        for worker in self.mine.clone() {
            for sum in self.sums.iter_mut().flatten() {
                sum.residual(worker)?.iter().for_each(|values| to_bytes(values, &mut own));
            }
        }
        if self.ranks == 1 {
            return Ok(vec![own]);
        }
        Ok(self.comm.run("gathering of residuals", move |world| world.gather(&own))?.unwrap_or_default())
    }

    /// Declares that no more gradients will be summed. Collective.
    pub fn retire(&self) -> Result<(), Error> {
        Ok(self.group.as_ref().map_or(Ok(()), |group| group.retire(&self.comm))?)
    }

    /// Returns how long this rank has waited for other ranks since the last call of this function.
    pub fn take_wait(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Returns what the gradient sum costs this rank, once the last measured step is done. Returns `None` in all other steps, and with a
    /// group of devices, because the host only enqueues their sums.
    pub fn take_report(&mut self) -> Option<report::Exchange> {
        if self.group.is_some() {
            return None;
        }
        self.measured.add(self.step, std::mem::take(&mut self.costs), self.codec)
    }
}

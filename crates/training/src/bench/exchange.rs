//! Gradient sums in a benchmark. Only the first ranks take part. The transport is the same as in training.

use std::slice::from_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use backend::{Backend, Buffer, Error as BackendError};
use base::lock;
use comm::{Comm, Error as CommError, World};
use engine::Graph;

use crate::error::Error;
use crate::train::reduce::bucket_sum::{self, BucketSum, Pending, SumStep, Timed};
use crate::train::reduce::transport::{Transport, TransportPlan};

/// Numbers of elements in the sums that measure the link.
const SIZES: [usize; 5] = [1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 20];

/// The communicator for the ranks that take part.
type Part = Arc<Mutex<World>>;

struct PartSum<B: Backend> {
    sum: Box<dyn BucketSum<B>>,
    part: Part,
}

impl<B: Backend> BucketSum<B> for PartSum<B> {
    fn prepare(&mut self, gradients: &mut [B::Buf]) -> Result<(), BackendError> {
        self.sum.prepare(gradients)
    }

    fn wait(&mut self, gradients: &mut [B::Buf], step: &SumStep) -> Result<(), BackendError> {
        self.sum.wait(gradients, step)
    }

    fn sum(&mut self, _: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, bucket_sum::Error> {
        self.sum.sum(&lock(&self.part), gradients, step)
    }
}

/// Sums each step's gradients over the ranks in `part`, as training does.
pub struct Exchange<B: Backend> {
    comm: Comm,
    part: Part,
    plan: TransportPlan<B>,
    /// The sum for each bucket. `None` while this sum is in progress.
    sums: Vec<Option<Box<dyn BucketSum<B>>>>,
    pending: Vec<(usize, Pending<B>)>,
}

impl<B: Backend> Exchange<B> {
    /// Creates a sum for each bucket, given the buckets' lengths. `part` must be freed with [`Exchange::free`].
    pub fn new(comm: &Comm, part: World, plan: TransportPlan<B>, buckets: &[usize]) -> Self {
        let (comm, part) = (comm.clone(), Arc::new(Mutex::new(part)));
        let mut exchange = Self { comm, part, plan, sums: Vec::new(), pending: Vec::new() };
        exchange.sums = buckets.iter().map(|&len| Some(exchange.float_sum(len))).collect();
        exchange
    }

    fn float_sum(&self, len: usize) -> Box<dyn BucketSum<B>> {
        Box::new(PartSum { sum: self.plan.transport.float_sum(len), part: self.part.clone() })
    }

    /// Starts the sum for a bucket that backward has completed.
    pub fn ready(&mut self, bucket: usize, gradients: Vec<B::Buf>) -> Result<(), Error> {
        let twice = || Error::Failed(format!("gradient bucket {bucket} was handed over twice in one step"));
        let sum = self.sums[bucket].take().ok_or_else(twice)?;
        let overlap = self.plan.overlap && !matches!(self.plan.transport, Transport::Nccl(_));
        self.pending.push((bucket, sum.start(&self.comm, gradients, SumStep::TRIAL, overlap)?));
        Ok(())
    }

    /// Waits for this step's sums and returns the gradients to the graph. With NCCL the sums are only enqueued, so
    /// there is no wait.
    pub fn finish(&mut self, graph: &mut Graph<B>) -> Result<(), Error> {
        for (bucket, pending) in std::mem::take(&mut self.pending) {
            let summed = pending.finish(&self.comm)?;
            self.sums[bucket] = Some(summed.sum);
            graph.put(bucket, summed.gradients);
        }
        Ok(())
    }

    /// Times sums with different sizes and fits the link's latency and rate to them.
    pub fn measure_link(&self, backend: &B) -> Result<LinearFit, Error> {
        let mut points = Vec::new();
        for elems in SIZES {
            let (mut buffer, mut sum) = (backend.alloc(elems)?, self.float_sum(elems));
            backend.zero(&mut buffer)?;
            let mut best = f64::INFINITY;
            for _ in 0..21 {
                backend.queue().map_or(Ok(()), |queue| queue.mark(&mut buffer))?;
                buffer.read(0, &mut [0.0])?;
                self.comm.run("barrier of a timing", |_| lock(&self.part).barrier())?;
                let start = Instant::now();
                time_sum(&self.comm, sum.as_mut(), &mut buffer, &SumStep::TRIAL)?;
                // the minimum, because disturbances are not a property of the link
                best = best.min(start.elapsed().as_secs_f64());
            }
            points.push((4.0 * elems as f64, best));
        }
        Ok(LinearFit::new(&points))
    }

    /// Frees the communicator. Collective over its ranks.
    pub fn free(self) -> Result<(), Error> {
        let Self { comm, part, sums, .. } = self;
        drop(sums);
        free(&comm, Arc::into_inner(part))
    }
}

fn free(comm: &Comm, part: Option<Mutex<World>>) -> Result<(), Error> {
    let part = part.map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(comm.run("end of the chosen ranks", |_| part.map_or(Ok::<(), CommError>(()), World::free))?)
}

/// Runs a sum and waits until its result is in the buffer. Returns its costs.
pub fn time_sum<B: Backend>(
    comm: &Comm,
    sum: &mut dyn BucketSum<B>,
    buffer: &mut B::Buf,
    step: &SumStep,
) -> Result<bucket_sum::Costs, Error> {
    sum.prepare(from_mut(buffer))?;
    sum.wait(from_mut(buffer), step)?;
    let timed = comm.run("timing of a sum", |world| Ok(sum.sum(world, from_mut(buffer), step)))??;
    buffer.read(0, &mut [0.0])?;
    Ok(timed.costs)
}

/// A linear model of a transfer: time = latency + bytes / rate. The latency is in seconds, the rate in bytes per
/// second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearFit {
    pub latency: f64,
    pub rate: f64,
}

impl LinearFit {
    /// Fits a line to (bytes, seconds). It minimises the squared relative errors, so small sizes count as much as large
    /// ones.
    pub fn new(points: &[(f64, f64)]) -> Self {
        let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, t)| f(x, t) / (t * t)).sum::<f64>();
        let (w, wx, wxx) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|x, _| x * x));
        let (wt, wxt) = (sum(&|_, t| t), sum(&|x, t| x * t));
        let slope = (w * wxt - wx * wt) / (w * wxx - wx * wx);
        if slope.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            // if times decrease with the size, they are noise: use the largest size, because its relative error is the
            // smallest
            let (bytes, seconds) = points.last().copied().unwrap_or((1.0, f64::INFINITY));
            return Self { latency: 0.0, rate: bytes / seconds };
        }
        Self { latency: ((wt - slope * wx) / w).max(0.0), rate: 1.0 / slope }
    }
}

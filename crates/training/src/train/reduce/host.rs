//! Sums of a bucket by a codec on the host, including `float`.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::{Backend, Buffer};
use comm::World;
use comm::codec::{Bucket, Codec, Entry, Key, Settings, Share, Tensor, ZeroCodes};

use crate::train::reduce::bucket_sum::{BucketSum, Costs, Error, SumStep, Timed, ZeroCount};
use crate::train::reduce::group::Group;

/// A bucket with a codec on the host. The codec keeps the residuals of error feedback from step to step.
pub struct HostSum {
    protocol: Protocol,
    codec: Box<dyn Codec>,
}

impl HostSum {
    /// Creates the sum of a bucket. `mine` are the indexes of this rank's workers.
    pub fn new(entry: &Entry, bucket: Bucket, settings: &Settings, mine: Range<usize>) -> Self {
        let codec = (entry.make)(&bucket, settings, mine);
        Self { protocol: Protocol::new(entry, bucket), codec }
    }

    /// Writes the sum over all workers of all ranks to the gradients of the last share. Collective.
    pub fn reduce(&mut self, world: &World, shares: &mut [Share<'_>], step: &SumStep) -> Result<Costs, Error> {
        self.protocol.run(world, &mut OnHost { codec: self.codec.as_mut(), shares }, step)
    }
}

impl<B: Backend> BucketSum<B> for HostSum {
    fn prepare(&mut self, gradients: &mut [B::Buf]) -> Result<(), backend::Error> {
        gradients.iter_mut().try_for_each(Buffer::fetch)
    }

    fn wait(&mut self, gradients: &mut [B::Buf], _: &SumStep) -> Result<(), backend::Error> {
        gradients.iter_mut().try_for_each(|gradients| gradients.staged().map(drop))
    }

    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, Error> {
        let shares = gradients.iter_mut().enumerate();
        let shares = shares.map(|(i, g)| Ok(Share { worker: step.worker + i, gradients: g.staged()? }));
        let mut shares = shares.collect::<Result<Vec<_>, backend::Error>>()?;
        let start = Instant::now();
        let costs = match self.reduce(world, &mut shares, step) {
            // all ranks have seen the same scales, so all of them skip the step
            Err(Error::NotFinite { .. }) if step.scaled => {
                shares.iter_mut().for_each(|share| self.protocol.spoil(share.gradients));
                Costs::default()
            }
            other => other?,
        };
        gradients.last_mut().map_or(Ok(()), Buffer::unstage)?;
        Ok(Timed { start, costs, zeros: self.protocol.take_zeros() })
    }

    fn residual(&mut self, worker: usize) -> Result<Option<Vec<f32>>, backend::Error> {
        Ok(self.codec.residual(worker).map(|residual| residual.to_vec()))
    }

    fn set_residual(&mut self, worker: usize, values: &[f32]) -> Result<(), backend::Error> {
        if let Some(residual) = self.codec.residual(worker) {
            residual.copy_from_slice(values);
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.codec.memory()
    }
}

struct OnHost<'a, 'b> {
    codec: &'a mut dyn Codec,
    shares: &'a mut [Share<'b>],
}

impl Phases for OnHost<'_, '_> {
    fn scales(&mut self, bucket: &Bucket, scales: &mut Vec<u32>) -> Result<(), backend::Error> {
        self.codec.scales(bucket, self.shares, scales);
        Ok(())
    }

    fn encode(&mut self, bucket: &Bucket, scales: &[u32], key: Key) -> Result<(), backend::Error> {
        self.codec.encode(bucket, scales, self.shares, key);
        Ok(())
    }

    fn zeros(
        &mut self,
        bucket: &Bucket,
        scales: &[u32],
        key: Key,
        zeros: ZeroCodes,
    ) -> Result<Vec<ZeroCount>, backend::Error> {
        let own = self.shares.iter().map(|share| (share.worker, &*share.gradients));
        Ok(count(bucket, scales, key, zeros, own))
    }

    fn send(&mut self, world: &World) -> Result<(), comm::Error> {
        self.codec.send(world, self.shares)
    }

    fn decode(&mut self, bucket: &Bucket, scales: &[u32]) -> Result<(), backend::Error> {
        if let Some(last) = self.shares.last_mut() {
            self.codec.decode(bucket, scales, last.gradients);
        }
        Ok(())
    }
}

/// The epochs whose gradients are summed by codec `exact`, without rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactEpochs {
    /// Period k: the epochs k, 2 k, ... are exact. Epochs are counted from 1.
    pub every: u32,
    pub steps_per_epoch: u64,
}

impl ExactEpochs {
    /// Returns true if the step after `done` earlier ones is in an exact epoch.
    fn has(self, done: u64) -> bool {
        (done / self.steps_per_epoch.max(1) + 1).is_multiple_of(u64::from(self.every))
    }
}

/// The sum of a bucket that uses a rounding codec in most epochs and codec `exact` in the others.
pub struct Alternating<B: Backend> {
    /// The sum with the rounding codec.
    pub coded: Box<dyn BucketSum<B>>,
    pub exact: Box<dyn BucketSum<B>>,
    pub epochs: ExactEpochs,
}

impl<B: Backend> Alternating<B> {
    /// Returns the sum for the step after `done` earlier ones.
    fn chosen(&mut self, done: u64) -> &mut dyn BucketSum<B> {
        if self.epochs.has(done) { &mut *self.exact } else { &mut *self.coded }
    }
}

impl<B: Backend> BucketSum<B> for Alternating<B> {
    fn into_group_sum(self: Box<Self>, group: &Arc<Group<B>>) -> Box<dyn BucketSum<B>> {
        let Self { coded, exact, epochs } = *self;
        Box::new(Self { coded: coded.into_group_sum(group), exact: exact.into_group_sum(group), epochs })
    }

    fn check(&mut self, step: u64) -> Result<(), Error> {
        self.chosen(step).check(step)
    }

    fn prepare(&mut self, gradients: &mut [B::Buf]) -> Result<(), backend::Error> {
        self.coded.prepare(gradients)?;
        // if only one of the codecs runs on the device, the other one needs the gradients in host memory
        if self.coded.codes_on_device() != self.exact.codes_on_device() {
            self.exact.prepare(gradients)
        } else {
            Ok(())
        }
    }

    fn wait(&mut self, gradients: &mut [B::Buf], step: &SumStep) -> Result<(), backend::Error> {
        self.chosen(step.done).wait(gradients, step)
    }

    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, Error> {
        self.chosen(step.done).sum(world, gradients, step)
    }

    fn codes_on_device(&self) -> bool {
        self.coded.codes_on_device()
    }

    fn residual(&mut self, worker: usize) -> Result<Option<Vec<f32>>, backend::Error> {
        self.coded.residual(worker)
    }

    fn set_residual(&mut self, worker: usize, values: &[f32]) -> Result<(), backend::Error> {
        self.coded.set_residual(worker, values)
    }

    fn memory(&self) -> usize {
        self.coded.memory() + self.exact.memory()
    }
}

// The protocol of every codec, on the host and on devices. Each rank computes a scale per tensor, and the ranks take
// the maximum of each scale. Then each rank encodes its gradients, MPI or NCCL sums the encoded gradients, and each
// rank decodes the sum.

const INFINITY: u32 = 0x7f80_0000;

/// The phases of a codec in one step, for one bucket of gradients.
pub trait Phases {
    /// Writes this rank's scale of each tensor. Writes nothing if the codec needs no scales.
    fn scales(&mut self, bucket: &Bucket, scales: &mut Vec<u32>) -> Result<(), backend::Error>;

    /// Encodes the gradients. `scales` are the maxima over all ranks.
    fn encode(&mut self, bucket: &Bucket, scales: &[u32], key: Key) -> Result<(), backend::Error>;

    /// Counts how many gradients of this rank's workers `encode` will turn into 0. Called before `encode`.
    fn zeros(
        &mut self,
        bucket: &Bucket,
        scales: &[u32],
        key: Key,
        zeros: ZeroCodes,
    ) -> Result<Vec<ZeroCount>, backend::Error>;

    /// Sums the encoded gradients over all ranks.
    fn send(&mut self, world: &World) -> Result<(), comm::Error>;

    /// Decodes the sum and writes it to the last buffer.
    fn decode(&mut self, bucket: &Bucket, scales: &[u32]) -> Result<(), backend::Error>;
}

/// Counts the encoded gradients that are 0. `workers` has the index of each worker and its gradients of the bucket.
pub fn count<'a>(
    bucket: &Bucket,
    scales: &[u32],
    key: Key,
    zeros: ZeroCodes,
    workers: impl Iterator<Item = (usize, &'a [f32])> + Clone,
) -> Vec<ZeroCount> {
    let coded = bucket.tensors.iter().zip(scales).filter(|(tensor, _)| !tensor.exempt);
    let of = |(tensor, scale): (&Tensor, &u32)| {
        let own = workers
            .clone()
            .map(|(worker, gradients)| zeros(tensor, &gradients[tensor.range.clone()], *scale, worker, key));
        ZeroCount { parameter: tensor.parameter, zeros: own.sum() }
    };
    coded.map(of).collect()
}

pub struct Protocol {
    bucket: Bucket,
    codec: &'static str,
    scales: Vec<u32>,
    /// Function that counts encoded gradients that are 0. `None` if the codec has no such function.
    counts: Option<ZeroCodes>,
    /// Result of the last count.
    zeros: Vec<ZeroCount>,
}

impl Protocol {
    pub fn new(entry: &Entry, bucket: Bucket) -> Self {
        Self { bucket, codec: entry.name, scales: Vec::new(), counts: entry.zeros, zeros: Vec::new() }
    }

    /// Returns true if the codec has a function that counts encoded gradients that are 0.
    pub fn can_count(&self) -> bool {
        self.counts.is_some()
    }

    /// Returns the result of the last count. Empty if it was already taken.
    pub fn take_zeros(&mut self) -> Vec<ZeroCount> {
        std::mem::take(&mut self.zeros)
    }

    /// Runs the phases and the MPI calls between them. Collective. With `step.compare`, also times a plain sum of the
    /// same number of f32 values. Before each of the two sums, a barrier makes all ranks start together.
    pub fn run(&mut self, world: &World, phases: &mut dyn Phases, step: &SumStep) -> Result<Costs, Error> {
        let SumStep { key, compare, count, .. } = *step;
        let mut costs = Costs { float_bytes: 4 * self.bucket.len as u64, ..Costs::default() };
        if compare {
            costs.float_wire = self.time_of_float(world)?;
            world.barrier()?;
        }
        let (start, before) = (Instant::now(), world.traffic());
        self.scales.clear();
        phases.scales(&self.bucket, &mut self.scales)?;
        if !self.scales.is_empty() {
            world.max_u32(&mut self.scales)?;
            self.check_finite(&self.scales)?;
        }
        if let Some(zeros) = self.counts.filter(|_| count) {
            self.zeros = phases.zeros(&self.bucket, &self.scales, key, zeros)?;
        }
        phases.encode(&self.bucket, &self.scales, key)?;
        phases.send(world)?;
        let (sent, after) = (start.elapsed(), world.traffic());
        phases.decode(&self.bucket, &self.scales)?;
        costs.bytes = after.bytes - before.bytes;
        costs.wire = after.time - before.time;
        costs.encode = sent.saturating_sub(costs.wire);
        costs.decode = start.elapsed() - sent;
        Ok(costs)
    }

    /// Returns an error if a scale is not finite. All ranks see the same scales, so they fail together.
    pub fn check_finite(&self, scales: &[u32]) -> Result<(), Error> {
        let Some(bad) = scales.iter().position(|bits| *bits >= INFINITY) else { return Ok(()) };
        let what = if scales[bad] == INFINITY { "infinity" } else { "NaN" };
        Err(Error::NotFinite { parameter: self.bucket.tensors[bad].name.clone(), what, codec: self.codec })
    }

    fn time_of_float(&self, world: &World) -> Result<Duration, Error> {
        let mut zeros = vec![0f32; self.bucket.len];
        world.barrier()?;
        let start = Instant::now();
        world.sum_f32(&mut zeros)?;
        Ok(start.elapsed())
    }

    /// Sets all gradients in a bucket to NaN, including the padding of their formats. The gaps between
    /// parameters stay unchanged: no pass writes to them, so NaN there would never go away.
    pub fn spoil(&self, values: &mut [f32]) {
        self.bucket.tensors.iter().for_each(|tensor| values[tensor.range.clone()].fill(f32::NAN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_third_epoch() {
        let epochs = ExactEpochs { every: 3, steps_per_epoch: 2 };
        let exact: Vec<u64> = (0..14).filter(|done| epochs.has(*done)).collect();
        assert_eq!(exact, [4, 5, 10, 11]);
        assert!((0..9).all(|done| ExactEpochs { every: 1, ..epochs }.has(done)));
    }
}

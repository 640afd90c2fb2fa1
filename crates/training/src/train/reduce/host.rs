//! A bucket's sum by a codec on the host; `float` is one of them.

use std::ops::Range;
use std::time::Instant;

use backend::{Backend, Buffer};
use comm::World;
use comm::codec::{Bucket, Codec, Entry, Key, Settings, Share, ZeroCodes};

use crate::train::reduce::bucket_sum::{BucketSum, SumStep};
use crate::train::reduce::costs::{Costs, Timed, ZeroCount};
use crate::train::reduce::error::Error;
use crate::train::reduce::protocol;
use crate::train::reduce::protocol::{Phases, Protocol};

/// A bucket and its codec, with the codec's memory from step to step.
pub struct HostSum {
    protocol: Protocol,
    codec: Box<dyn Codec>,
}

impl HostSum {
    /// For this bucket, on the rank with these workers.
    pub fn new(entry: &Entry, bucket: Bucket, settings: &Settings, mine: Range<usize>) -> Self {
        let codec = (entry.make)(&bucket, settings, mine);
        Self { protocol: Protocol::new(entry, bucket), codec }
    }

    /// Leaves the sum over all workers of all ranks in the last share; collective.
    pub fn reduce(&mut self, world: &World, shares: &mut [Share<'_>], step: &SumStep) -> Result<Costs, Error> {
        self.protocol.run(world, &mut OnHost { codec: self.codec.as_mut(), shares }, step)
    }
}

impl<B: Backend> BucketSum<B> for HostSum {
    fn prepare(&mut self, gradients: &mut [B::Buf]) -> Result<(), backend::Error> {
        gradients.iter_mut().try_for_each(Buffer::fetch)
    }

    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, Error> {
        let shares = gradients.iter_mut().enumerate();
        let shares = shares.map(|(i, g)| Ok(Share { worker: step.worker + i, gradients: g.staged()? }));
        let mut shares = shares.collect::<Result<Vec<_>, backend::Error>>()?;
        let start = Instant::now();
        let costs = match self.reduce(world, &mut shares, step) {
            // all ranks have seen the same scales, so all leave the step out
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
        Ok(protocol::count(bucket, scales, key, zeros, own))
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

//! Sums of a bucket in device memory: with a codec on the device, with MPI on device memory, or with NCCL.

use std::sync::Arc;
use std::time::Instant;

use backend::{Backend, Buffer, DeviceCodec};
use comm::World;
use comm::codec::{Bucket, Entry, Key, ZeroCodes};

use crate::train::reduce::bucket_sum::{BucketSum, Costs, Error, SumStep, Timed, ZeroCount};
use crate::train::reduce::group::Group;
use crate::train::reduce::host::{self, Phases, Protocol};

/// A bucket with a codec on the device. The codec keeps the residuals of error feedback from step to step.
pub struct DeviceSum<B: Backend> {
    protocol: Protocol,
    codec: Box<dyn DeviceCodec<B>>,
    /// The group of devices that sum the encoded gradients. `None` if MPI sums them.
    group: Option<Arc<Group<B>>>,
}

impl<B: Backend> DeviceSum<B> {
    /// Creates a bucket's sum. `codec` is the device's version of `entry`.
    pub fn new(entry: &Entry, bucket: Bucket, codec: Box<dyn DeviceCodec<B>>) -> Self {
        Self { protocol: Protocol::new(entry, bucket), codec, group: None }
    }

    /// Sets the sums of all parameters to NaN, so that the device skips the step.
    fn spoil(&self, gradients: &mut [B::Buf]) -> Result<(), backend::Error> {
        let Some(last) = gradients.last_mut() else { return Ok(()) };
        let values = last.staged()?;
        values.fill(0.0);
        self.protocol.spoil(values);
        last.unstage()
    }

    /// Returns true if a group of devices sums in this step. The host counts the codes that are 0, so a step that counts them does not
    /// use the group.
    fn uses_group(&self, step: &SumStep) -> bool {
        self.group.is_some() && !(step.count && self.protocol.can_count())
    }
}

impl<B: Backend> BucketSum<B> for DeviceSum<B> {
    fn into_group_sum(self: Box<Self>, group: &Arc<Group<B>>) -> Box<dyn BucketSum<B>> {
        Box::new(Self { group: Some(group.clone()), ..*self })
    }

    fn wait(&mut self, gradients: &mut [B::Buf], step: &SumStep) -> Result<(), backend::Error> {
        if self.uses_group(step) { Ok(()) } else { self.codec.begin(gradients) }
    }

    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, Error> {
        if let Some(group) = self.group.as_ref().filter(|_| self.uses_group(step)) {
            let start = Instant::now();
            let bytes = self.codec.sum_in(group.lock().as_mut(), gradients, step.key)? as u64;
            let float_bytes = 4 * gradients.last().map_or(0, Buffer::len) as u64;
            let costs = Costs { bytes, float_bytes, wire: start.elapsed(), ..Costs::default() };
            return Ok(Timed { start, costs, zeros: Vec::new() });
        }
        let start = Instant::now();
        let mut phases = OnDevice { codec: self.codec.as_mut(), gradients, worker: step.worker };
        let costs = match self.protocol.run(world, &mut phases, step) {
            // all ranks have seen the same scales, so all of them skip the step
            Err(Error::NotFinite { .. }) if step.scaled => {
                self.spoil(gradients)?;
                Costs::default()
            }
            other => other?,
        };
        Ok(Timed { start, costs, zeros: self.protocol.take_zeros() })
    }

    fn check(&mut self, step: u64) -> Result<(), Error> {
        if self.group.is_none() { Ok(()) } else { self.protocol.check_finite(self.codec.scales(step)?) }
    }

    fn codes_on_device(&self) -> bool {
        true
    }

    fn residual(&mut self, worker: usize) -> Result<Option<Vec<f32>>, backend::Error> {
        self.codec.residual(worker).map(|residual| elements(residual)).transpose()
    }

    fn set_residual(&mut self, worker: usize, values: &[f32]) -> Result<(), backend::Error> {
        self.codec.residual(worker).map_or(Ok(()), |residual| residual.write(0, values))
    }

    fn memory(&self) -> usize {
        self.codec.memory()
    }
}

/// Copies the elements of a buffer to the host.
pub fn elements<B: Buffer>(buffer: &B) -> Result<Vec<f32>, backend::Error> {
    let mut values = vec![0.0; buffer.len()];
    buffer.read(0, &mut values)?;
    Ok(values)
}

struct OnDevice<'a, B: Backend> {
    codec: &'a mut dyn DeviceCodec<B>,
    gradients: &'a mut [B::Buf],
    /// Index of the worker whose gradients are in the first buffer.
    worker: usize,
}

impl<B: Backend> Phases for OnDevice<'_, B> {
    fn scales(&mut self, _: &Bucket, scales: &mut Vec<u32>) -> Result<(), backend::Error> {
        self.codec.measure(self.gradients, scales)
    }

    fn encode(&mut self, _: &Bucket, scales: &[u32], key: Key) -> Result<(), backend::Error> {
        self.codec.encode(self.gradients, scales, key)
    }

    fn zeros(
        &mut self,
        bucket: &Bucket,
        scales: &[u32],
        key: Key,
        zeros: ZeroCodes,
    ) -> Result<Vec<ZeroCount>, backend::Error> {
        let own = self.gradients.iter().map(elements).collect::<Result<Vec<_>, _>>()?;
        let own = own.iter().enumerate().map(|(i, gradients)| (self.worker + i, gradients.as_slice()));
        Ok(host::count(bucket, scales, key, zeros, own))
    }

    fn send(&mut self, world: &World) -> Result<(), comm::Error> {
        let codes = self.codec.codes();
        if !codes.words.is_empty() {
            world.sum_u64(codes.words)?;
        }
        if !codes.integers.is_empty() {
            world.sum_i32(codes.integers)?;
        }
        if !codes.halves.is_empty() {
            world.sum_bf16(codes.halves)?;
        }
        Ok(())
    }

    fn decode(&mut self, _: &Bucket, _: &[u32]) -> Result<(), backend::Error> {
        self.gradients.last_mut().map_or(Ok(()), |last| self.codec.decode(last))
    }
}

/// A sum of f32 by an MPI library that accepts device memory.
pub struct MpiSum;

impl<B: Backend> BucketSum<B> for MpiSum {
    fn wait(&mut self, gradients: &mut [B::Buf], _: &SumStep) -> Result<(), backend::Error> {
        gradients.last_mut().map_or(Ok(()), |bucket| bucket.region().map(drop))
    }

    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], _: &SumStep) -> Result<Timed, Error> {
        let Some(bucket) = gradients.last_mut() else { return Ok(Timed::in_place(Instant::now(), 0)) };
        let elements = bucket.len();
        let mut region = bucket.region()?.ok_or_else(no_region)?;
        let start = Instant::now();
        world.sum_region(&mut region)?;
        Ok(Timed::in_place(start, elements))
    }
}

fn no_region() -> backend::Error {
    let why = "no library can use this device's memory; use reduce.path = \"staged\"".into();
    backend::Error::Unsupported { op: "the sum of gradients".into(), why }
}

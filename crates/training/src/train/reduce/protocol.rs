//! The protocol of every codec, on the host and on devices: scales, their largest over all ranks, codes, their sum over all ranks,
//! gradients.

use std::time::{Duration, Instant};

use comm::World;
use comm::codec::{Bucket, Entry, Key, Tensor, ZeroCodes};

use crate::train::reduce::bucket_sum::SumStep;
use crate::train::reduce::costs::{Costs, ZeroCount};
use crate::train::reduce::error::Error;

/// Bits of the first f32 beyond the finite ones.
const INFINITY: u32 = 0x7f80_0000;

/// A codec's part in each phase of a step, over the gradients of one bucket.
pub trait Phases {
    /// Writes this rank's scale of each tensor; none where the codec needs none.
    fn scales(&mut self, bucket: &Bucket, scales: &mut Vec<u32>) -> Result<(), backend::Error>;

    /// Makes codes, by the scales of all ranks.
    fn encode(&mut self, bucket: &Bucket, scales: &[u32], key: Key) -> Result<(), backend::Error>;

    /// Counts the codes that are 0 of this rank's workers, before they are made.
    fn zeros(
        &mut self,
        _bucket: &Bucket,
        _scales: &[u32],
        _key: Key,
        _zeros: ZeroCodes,
    ) -> Result<Vec<ZeroCount>, backend::Error> {
        Ok(Vec::new())
    }

    /// Adds the codes over all ranks.
    fn send(&mut self, world: &World) -> Result<(), comm::Error>;

    /// Leaves the sum in the last buffer.
    fn decode(&mut self, bucket: &Bucket, scales: &[u32]) -> Result<(), backend::Error>;
}

/// The counts over these workers: the number of each, and its gradients of the bucket.
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

/// One bucket's protocol.
pub struct Protocol {
    bucket: Bucket,
    /// The codec's name.
    codec: &'static str,
    scales: Vec<u32>,
    /// How the codec's zeros are counted.
    counts: Option<ZeroCodes>,
    /// The last count.
    zeros: Vec<ZeroCount>,
}

impl Protocol {
    /// Of this codec, for this bucket.
    pub fn new(entry: &Entry, bucket: Bucket) -> Self {
        Self { bucket, codec: entry.name, scales: Vec::new(), counts: entry.zeros, zeros: Vec::new() }
    }

    /// The codes that were 0 in the last step that counted them.
    pub fn take_zeros(&mut self) -> Vec<ZeroCount> {
        std::mem::take(&mut self.zeros)
    }

    /// Runs the phases, with MPI between them; collective. With `step.compare`, also times the sum of as many f32, for which all ranks
    /// start together, as then they do for the codec.
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
            self.check_finite()?;
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

    /// All ranks see the same scales, so all or none fail.
    fn check_finite(&self) -> Result<(), Error> {
        let Some(bad) = self.scales.iter().position(|bits| *bits >= INFINITY) else { return Ok(()) };
        let what = if self.scales[bad] == INFINITY { "infinity" } else { "NaN" };
        Err(Error::NotFinite { parameter: self.bucket.tensors[bad].name.clone(), what, codec: self.codec })
    }

    fn time_of_float(&self, world: &World) -> Result<Duration, Error> {
        let mut zeros = vec![0f32; self.bucket.len];
        world.barrier()?;
        let start = Instant::now();
        world.sum_f32(&mut zeros)?;
        Ok(start.elapsed())
    }

    /// Writes NaN to all parameters of a bucket. Padding stays as it is, or it would make all later steps NaN, too.
    pub fn spoil(&self, values: &mut [f32]) {
        self.bucket.tensors.iter().for_each(|tensor| values[tensor.range.clone()].fill(f32::NAN));
    }
}

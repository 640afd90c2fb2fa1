//! The protocol of every codec, on the host and on devices: scales, their largest over all ranks, codes, their sum over all ranks,
//! gradients.

use std::time::{Duration, Instant};

use crate::backend;
use crate::comm::codec::{Bucket, Entry, Key};
use crate::comm::{self, World};
use crate::train::reduce::costs::Costs;
use crate::train::reduce::error::Error;

/// Bits of the first f32 beyond the finite ones.
const INFINITY: u32 = 0x7f80_0000;

/// A codec's part in each phase of a step, over the gradients of one bucket.
pub trait Phases {
    /// Writes this rank's scale of each tensor; none where the codec needs none.
    fn scales(&mut self, bucket: &Bucket, scales: &mut Vec<u32>) -> Result<(), backend::Error>;

    /// Makes codes, by the scales of all ranks.
    fn encode(&mut self, bucket: &Bucket, scales: &[u32], key: Key) -> Result<(), backend::Error>;

    /// Adds the codes over all ranks.
    fn send(&mut self, world: &World) -> Result<(), comm::Error>;

    /// Leaves the sum in the last buffer.
    fn decode(&mut self, bucket: &Bucket, scales: &[u32]) -> Result<(), backend::Error>;
}

/// One bucket's protocol.
pub struct Protocol {
    bucket: Bucket,
    /// The codec's name.
    codec: &'static str,
    scales: Vec<u32>,
}

impl Protocol {
    /// Of this codec, for this bucket.
    pub fn new(entry: &Entry, bucket: Bucket) -> Self {
        Self { bucket, codec: entry.name, scales: Vec::new() }
    }

    /// Runs the phases, with MPI between them; collective. With `compare`, also times the sum of as many f32, for which all ranks
    /// start together, as then they do for the codec.
    pub fn run(&mut self, world: &World, phases: &mut dyn Phases, key: Key, compare: bool) -> Result<Costs, Error> {
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

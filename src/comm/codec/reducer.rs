//! One bucket's way through its codec, and what it costs. It moves to the thread that owns MPI and back, with its bucket's
//! gradients, so that several may be under way.

use std::convert::Infallible;
use std::ops::{AddAssign, Range};
use std::time::{Duration, Instant};

use super::{Bucket, Codec, Entry, Key, Settings, Share};
use crate::comm::{Error, World};

/// Bits of the first f32 beyond the finite ones.
const INFINITY: u32 = 0x7f80_0000;

/// A bucket and the order of a codec's phases, wherever they are done.
pub struct Course {
    bucket: Bucket,
    name: &'static str,
    scales: Vec<u32>,
}

/// A bucket and its codec, with the codec's memory from step to step.
pub struct Reducer {
    course: Course,
    codec: Box<dyn Codec>,
}

/// What one step of an exchange has cost this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// Handed to MPI_Allreduce.
    pub bytes: u64,
    /// What plain f32 would have handed over.
    pub float_bytes: u64,
    /// From gradients to what travels.
    pub encode: Duration,
    /// Inside MPI.
    pub wire: Duration,
    /// Back to gradients.
    pub decode: Duration,
    /// Inside MPI for the same buckets as f32, where that was tried.
    pub float_wire: Duration,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.float_bytes += other.float_bytes;
        self.encode += other.encode;
        self.wire += other.wire;
        self.decode += other.decode;
        self.float_wire += other.float_wire;
    }
}

impl Reducer {
    /// For this bucket, on the rank with these workers.
    pub fn new(entry: &Entry, bucket: Bucket, settings: &Settings, mine: Range<usize>) -> Self {
        let codec = (entry.make)(&bucket, settings, mine);
        Self { course: Course::new(entry, bucket), codec }
    }

    /// What travels.
    pub fn bucket(&self) -> &Bucket {
        &self.course.bucket
    }

    /// Bytes of memory of the codec.
    pub fn memory(&self) -> usize {
        self.codec.memory()
    }

    /// What this worker carries over to the next step under error feedback: all of the bucket, in the gradients' own layout.
    pub fn residual(&mut self, worker: usize) -> Option<&mut [f32]> {
        self.codec.residual(worker)
    }

    /// Leaves the sum over all workers of all ranks in the last share; collective. With `compare`, also times the sum of as many
    /// f32, for which all ranks start together, as then they do for the codec.
    ///
    /// # Errors
    /// [`Error::NotFinite`] on all ranks alike, where the codec needs finite gradients; errors of MPI.
    pub fn reduce(&mut self, world: &World, shares: &mut [Share<'_>], key: Key, compare: bool) -> Result<Costs, Error> {
        let mut host = OnHost { codec: self.codec.as_mut(), shares };
        let Ok(costs) = self.course.run(world, &mut host, key, compare)?;
        Ok(costs)
    }
}

/// The phases of a codec over one bucket's shares; see [`Codec`].
pub trait Phases {
    /// What may go wrong.
    type Failure;

    /// This rank's scales; none where the codec needs none.
    fn scales(&mut self, bucket: &Bucket, scales: &mut Vec<u32>) -> Result<(), Self::Failure>;

    /// Turns the shares into what travels, by the scales of all ranks.
    fn encode(&mut self, bucket: &Bucket, scales: &[u32], key: Key) -> Result<(), Self::Failure>;

    /// Adds it over all ranks.
    fn send(&mut self, world: &World) -> Result<(), Error>;

    /// Leaves the sum in the last share.
    fn decode(&mut self, bucket: &Bucket, scales: &[u32]) -> Result<(), Self::Failure>;
}

/// By the codec's own code.
struct OnHost<'a, 'b> {
    codec: &'a mut dyn Codec,
    shares: &'a mut [Share<'b>],
}

impl Phases for OnHost<'_, '_> {
    type Failure = Infallible;

    fn scales(&mut self, bucket: &Bucket, scales: &mut Vec<u32>) -> Result<(), Infallible> {
        self.codec.scales(bucket, self.shares, scales);
        Ok(())
    }

    fn encode(&mut self, bucket: &Bucket, scales: &[u32], key: Key) -> Result<(), Infallible> {
        self.codec.encode(bucket, scales, self.shares, key);
        Ok(())
    }

    fn send(&mut self, world: &World) -> Result<(), Error> {
        self.codec.send(world, self.shares)
    }

    fn decode(&mut self, bucket: &Bucket, scales: &[u32]) -> Result<(), Infallible> {
        if let Some(last) = self.shares.last_mut() {
            self.codec.decode(bucket, scales, last.gradients);
        }
        Ok(())
    }
}

/// Why a bucket does not get through.
enum Halt<F> {
    Comm(Error),
    Phase(F),
}

impl<F> From<Error> for Halt<F> {
    fn from(error: Error) -> Self {
        Halt::Comm(error)
    }
}

impl Course {
    /// Of this codec, for this bucket.
    pub fn new(entry: &Entry, bucket: Bucket) -> Self {
        Self { bucket, name: entry.name, scales: Vec::new() }
    }

    /// What travels.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// The phases one after another, as [`Reducer::reduce`] does those of the codec's own code. Their errors are the inner ones: the
    /// other ranks know nothing of them.
    pub fn run<P: Phases>(
        &mut self,
        world: &World,
        phases: &mut P,
        key: Key,
        compare: bool,
    ) -> Result<Result<Costs, P::Failure>, Error> {
        match self.phases(world, phases, key, compare) {
            Ok(costs) => Ok(Ok(costs)),
            Err(Halt::Comm(error)) => Err(error),
            Err(Halt::Phase(failure)) => Ok(Err(failure)),
        }
    }

    fn phases<P: Phases>(
        &mut self,
        world: &World,
        phases: &mut P,
        key: Key,
        compare: bool,
    ) -> Result<Costs, Halt<P::Failure>> {
        let mut costs = Costs { float_bytes: 4 * self.bucket.len as u64, ..Costs::default() };
        if compare {
            costs.float_wire = self.time_of_float(world)?;
            world.barrier()?;
        }
        let (start, before) = (Instant::now(), world.traffic());
        self.scales.clear();
        phases.scales(&self.bucket, &mut self.scales).map_err(Halt::Phase)?;
        if !self.scales.is_empty() {
            world.max_u32(&mut self.scales)?;
            self.check_finite()?;
        }
        phases.encode(&self.bucket, &self.scales, key).map_err(Halt::Phase)?;
        phases.send(world)?;
        let (sent, after) = (start.elapsed(), world.traffic());
        phases.decode(&self.bucket, &self.scales).map_err(Halt::Phase)?;
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
        Err(Error::NotFinite { parameter: self.bucket.tensors[bad].name.clone(), what, codec: self.name })
    }

    fn time_of_float(&self, world: &World) -> Result<Duration, Error> {
        let mut zeros = vec![0f32; self.bucket.len];
        world.barrier()?;
        let start = Instant::now();
        world.sum_f32(&mut zeros)?;
        Ok(start.elapsed())
    }
}

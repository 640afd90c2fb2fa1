//! The sum of one bucket over the ranks: the trait that every transport and codec implements, a sum under way, and what it has cost.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use backend::Backend;
use comm::codec::Key;
use comm::{Comm, World};

use crate::error;

/// Name of the operation.
const GRADIENTS: &str = "sum of gradients";

/// What a sum must know of the step.
#[derive(Clone, Copy, Debug)]
pub struct SumStep {
    /// Optimizer steps done before.
    pub done: u64,
    /// Keys the codec's draws.
    pub key: Key,
    /// The worker of the first buffer.
    pub worker: usize,
    /// Whether a gradient that is not finite leaves NaN behind, for the device to leave the step out; else it is an error.
    pub scaled: bool,
    /// Whether the sum of as many f32 is timed, too.
    pub compare: bool,
    /// Whether codes that are 0 are counted, where the codec makes such.
    pub count: bool,
}

/// Sums one bucket of gradients over all workers of all ranks, step after step. Its `start` begins a sum, [`Pending::finish`]
/// ends it; an implementation does what happens between.
pub trait BucketSum<B: Backend>: Send {
    /// Starts copying the gradients to where they are summed, on the thread that computes.
    fn prepare(&mut self, _gradients: &mut [B::Buf]) -> Result<(), backend::Error> {
        Ok(())
    }

    /// Leaves the sum in the last buffer; the buffers are one a worker of this rank, or one with their sum. Collective, inside an
    /// operation of [`Comm`].
    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, Error>;

    /// Whether the device makes codes, so that only these come to the host.
    fn codes_on_device(&self) -> bool {
        false
    }

    /// What this worker carries over to the next step under error feedback, in the gradients' own layout; none for workers of other
    /// ranks.
    fn residual(&mut self, _worker: usize) -> Result<Option<Vec<f32>>, backend::Error> {
        Ok(None)
    }

    /// Goes on with such a residual, if the worker is one of this rank's.
    fn set_residual(&mut self, _worker: usize, _values: &[f32]) -> Result<(), backend::Error> {
        Ok(())
    }

    /// Bytes of memory, residuals included.
    fn memory(&self) -> usize {
        0
    }
}

impl<B: Backend> dyn BucketSum<B> {
    /// Starts the sum of these gradients. With `overlap` it runs on the MPI thread, beside the caller; else it waits for
    /// [`Pending::finish`], whose thread has the gradients in its cache.
    pub fn start(
        mut self: Box<Self>,
        comm: &Comm,
        mut gradients: Vec<B::Buf>,
        step: SumStep,
        overlap: bool,
    ) -> Result<Pending<B>, Error> {
        self.prepare(&mut gradients)?;
        let work = Work { sum: self, gradients, step };
        Ok(match overlap {
            true => Pending::Queued(comm.start(GRADIENTS, move |world| Ok(work.run(world)))),
            false => Pending::Held(work),
        })
    }
}

/// A bucket with all that its sum needs, for whichever thread.
pub struct Work<B: Backend> {
    sum: Box<dyn BucketSum<B>>,
    gradients: Vec<B::Buf>,
    step: SumStep,
}

impl<B: Backend> Work<B> {
    fn run(mut self, world: &World) -> Result<Summed<B>, Error> {
        let timed = self.sum.sum(world, &mut self.gradients, &self.step)?;
        Ok(Summed { gradients: self.gradients, sum: self.sum, timed })
    }
}

/// A sum under way.
pub enum Pending<B: Backend> {
    /// On the MPI thread.
    Queued(comm::Pending<Result<Summed<B>, Error>>),
    /// To be done by the thread that finishes it.
    Held(Work<B>),
}

/// A sum that is done.
pub struct Summed<B: Backend> {
    /// The buffers; the last has the sum.
    pub gradients: Vec<B::Buf>,
    /// For the next step.
    pub sum: Box<dyn BucketSum<B>>,
    /// What it has cost.
    pub timed: Timed,
}

impl<B: Backend> Pending<B> {
    /// Waits for the sum, or does it.
    pub fn finish(self, comm: &Comm) -> Result<Summed<B>, Error> {
        match self {
            Pending::Queued(pending) => pending.wait()?,
            Pending::Held(work) => comm.run(GRADIENTS, |world| Ok(work.run(world)))?,
        }
    }
}

/// What one sum, or those of a step, have cost this rank.
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

/// One sum's costs, and when it began, once the gradients were there.
#[derive(Debug, Clone)]
pub struct Timed {
    /// When it began.
    pub start: Instant,
    /// What it has cost.
    pub costs: Costs,
    /// Codes of this rank's workers that are 0, where they were counted.
    pub zeros: Vec<ZeroCount>,
}

/// Codes of one parameter that are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCount {
    /// Its number in the network.
    pub parameter: u16,
    /// Over this rank's workers.
    pub zeros: u64,
}

impl Timed {
    /// So many f32 that were summed where they lie, since `start`.
    pub fn in_place(start: Instant, elements: usize) -> Self {
        let bytes = 4 * elements as u64;
        let costs = Costs { bytes, float_bytes: bytes, wire: start.elapsed(), ..Costs::default() };
        Self { start, costs, zeros: Vec::new() }
    }
}

/// An error of the sum of a bucket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device: only this rank knows.
    #[error(transparent)]
    Device(#[from] backend::Error),
    /// MPI.
    #[error(transparent)]
    Comm(#[from] comm::Error),
    /// A gradient that the codec cannot carry: all ranks have seen the same scales, so all know.
    #[error(
        "the gradient of parameter {parameter} holds {what}, which no integer can stand for (reduce.codec = \"{codec}\"). Try a \
         smaller schedule.base_lr, a longer schedule.warmup_epochs, or check the data with `trireme data stats`"
    )]
    NotFinite {
        /// Name of the parameter.
        parameter: String,
        /// `NaN` or `infinity`.
        what: &'static str,
        /// Name of the codec.
        codec: &'static str,
    },
}

impl From<Error> for error::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Device(error) => error.into(),
            Error::Comm(error) => error.into(),
            Error::NotFinite { .. } => Self::Failed(error.to_string()),
        }
    }
}

/// Appends values to bytes.
pub fn to_bytes(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// Reads values back.
pub fn from_bytes(bytes: &[u8], values: &mut [f32]) {
    let (words, _) = bytes.as_chunks::<4>();
    values.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
}

//! The sum of one gradient bucket over the ranks: the trait that every transport and codec implements, a sum in
//! progress, and its costs.

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::{Backend, Buffer, Reduction};
use comm::codec::Key;
use comm::{Comm, World};

use crate::error;
use crate::train::reduce::group::Group;

const GRADIENTS: &str = "sum of gradients";

/// The parameters of a sum in a step.
#[derive(Clone, Copy, Debug)]
pub struct SumStep {
    /// Number of steps before this one.
    pub done: u64,
    /// Key of the codec's random draws.
    pub key: Key,
    /// Index of the worker whose gradients are in the first buffer.
    pub worker: usize,
    /// If set, a gradient that is not finite makes the result NaN, so that the device skips the step. Otherwise it is
    /// an error.
    pub scaled: bool,
    /// True if a plain f32 sum of the same length is also timed.
    pub compare: bool,
    /// True if encoded gradients that are 0 are counted, if the codec can count them.
    pub count: bool,
}

impl SumStep {
    /// The parameters of sums in tests and benchmarks. Sums of f32 do not depend on them.
    pub const TRIAL: Self =
        Self { done: 0, key: Key { seed: 1, step: 0 }, worker: 0, scaled: false, compare: false, count: false };
}

/// Sums a bucket of gradients over the workers on all ranks, in every step. Callers use `start`, which begins a sum,
/// and [`Pending::finish`], which waits for it. Implementations provide the steps `prepare`, `wait` and `sum`.
pub trait BucketSum<B: Backend>: Send {
    /// Starts to copy the gradients to the memory in which they are summed. Called on the compute thread.
    fn prepare(&mut self, _gradients: &mut [B::Buf]) -> Result<(), backend::Error> {
        Ok(())
    }

    /// Waits until the device has computed what [`BucketSum::sum`] reads. Called right before it.
    fn wait(&mut self, gradients: &mut [B::Buf], step: &SumStep) -> Result<(), backend::Error>;

    /// Writes the sum to the last of the buffers `gradients`. There is one buffer per worker of this rank, or a single
    /// buffer with the sum of these workers. Collective, called inside an operation of [`Comm`].
    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], step: &SumStep) -> Result<Timed, Error>;

    /// Returns an object that sums the same bucket with a group of devices instead of MPI.
    fn into_group_sum(self: Box<Self>, group: &Arc<Group<B>>) -> Box<dyn BucketSum<B>> {
        Box::new(NcclSum(group.clone()))
    }

    /// Returns an error if a sum that was only enqueued has failed. The sum belongs to the step after the first `step`
    /// steps. All ranks return the same result.
    fn check(&mut self, _step: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Returns true if the device encodes the gradients, so that only encoded gradients are copied to the host.
    fn codes_on_device(&self) -> bool {
        false
    }

    /// Returns the residual of a worker, in the layout of the gradients. Error feedback adds it to the gradients of the
    /// next step. Returns `None` for workers of other ranks.
    fn residual(&mut self, _worker: usize) -> Result<Option<Vec<f32>>, backend::Error> {
        Ok(None)
    }

    /// Sets the residual of a worker. Does nothing for workers of other ranks.
    fn set_residual(&mut self, _worker: usize, _values: &[f32]) -> Result<(), backend::Error> {
        Ok(())
    }

    /// Returns the host memory that this object uses, in bytes, including residuals.
    fn memory(&self) -> usize {
        0
    }
}

impl<B: Backend> dyn BucketSum<B> {
    /// Starts the sum of these gradients. With `overlap` the sum runs on the MPI thread in parallel to the caller.
    /// Otherwise it runs later in [`Pending::finish`] on the calling thread, which has the gradients in its cache.
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
            true => Pending::Queued(comm.start_after(
                GRADIENTS,
                move || work.ready(),
                |work, world| Ok(work.and_then(|work| work.run(world))),
            )),
            false => Pending::Held(work),
        })
    }
}

/// A bucket and everything that is needed to sum it. It can be sent to another thread.
pub struct Work<B: Backend> {
    sum: Box<dyn BucketSum<B>>,
    gradients: Vec<B::Buf>,
    step: SumStep,
}

impl<B: Backend> Work<B> {
    fn ready(mut self) -> Result<Self, Error> {
        self.sum.wait(&mut self.gradients, &self.step)?;
        Ok(self)
    }

    fn run(mut self, world: &World) -> Result<Summed<B>, Error> {
        let timed = self.sum.sum(world, &mut self.gradients, &self.step)?;
        Ok(Summed { gradients: self.gradients, sum: self.sum, timed })
    }
}

pub enum Pending<B: Backend> {
    /// Runs on the MPI thread.
    Queued(comm::Pending<Result<Summed<B>, Error>>),
    /// Runs on the thread that calls [`Pending::finish`].
    Held(Work<B>),
}

pub struct Summed<B: Backend> {
    /// The buffers that were passed to the sum. The last buffer contains the result.
    pub gradients: Vec<B::Buf>,
    /// The object that sums this bucket in the next step.
    pub sum: Box<dyn BucketSum<B>>,
    pub timed: Timed,
}

impl<B: Backend> Pending<B> {
    /// Waits for the sum if it is queued, or runs it on this thread.
    pub fn finish(self, comm: &Comm) -> Result<Summed<B>, Error> {
        match self {
            Pending::Queued(pending) => pending.wait()?,
            Pending::Held(work) => {
                comm.run_after(GRADIENTS, || work.ready(), |work, world| Ok(work.and_then(|work| work.run(world))))?
            }
        }
    }
}

/// Costs on this rank, for a single sum or for a whole step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// Bytes that this rank passes to the allreduce of MPI or NCCL.
    pub bytes: u64,
    /// Bytes that plain f32 would have needed.
    pub float_bytes: u64,
    pub encode: Duration,
    /// Time inside MPI.
    pub wire: Duration,
    pub decode: Duration,
    /// Time inside MPI for a plain f32 sum of the same buckets, if measured.
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

/// Start time and costs of a sum.
#[derive(Debug, Clone)]
pub struct Timed {
    /// Time when the gradients were ready and the sum began.
    pub start: Instant,
    pub costs: Costs,
    /// Per parameter, how many encoded gradients of this rank's workers are 0. Empty if they were not counted.
    pub zeros: Vec<ZeroCount>,
}

/// How many encoded gradients of a parameter are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCount {
    /// Index of the parameter in the network.
    pub parameter: u16,
    /// Total of this rank's workers.
    pub zeros: u64,
}

impl Timed {
    /// Returns the costs of an in-place sum that began at `start`. `elements` is the number of f32 values.
    pub fn in_place(start: Instant, elements: usize) -> Self {
        let bytes = 4 * elements as u64;
        let costs = Costs { bytes, float_bytes: bytes, wire: start.elapsed(), ..Costs::default() };
        Self { start, costs, zeros: Vec::new() }
    }
}

/// An error while a bucket is summed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the device. Only this rank knows it.
    #[error(transparent)]
    Device(#[from] backend::Error),
    #[error(transparent)]
    Comm(#[from] comm::Error),
    /// The codec cannot represent a gradient. All ranks have seen the same scales, so they all know this error.
    #[error(
        "the gradient of parameter {parameter} contains {what}, which an integer codec cannot represent (reduce.codec = \"{codec}\"). \
         Try a smaller schedule.base_lr, a longer schedule.warmup_epochs, or check the data with `trireme data stats`"
    )]
    NotFinite {
        parameter: String,
        /// `NaN` or `infinity`.
        what: &'static str,
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

/// Appends the values to `bytes` in little-endian order.
pub fn to_bytes(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// Reads values that [`to_bytes`] wrote.
pub fn from_bytes(bytes: &[u8], values: &mut [f32]) {
    let (words, _) = bytes.as_chunks::<4>();
    values.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
}

/// An f32 sum by a group of devices. The host only enqueues it.
pub struct NcclSum<B: Backend>(pub Arc<Group<B>>);

impl<B: Backend> BucketSum<B> for NcclSum<B> {
    fn wait(&mut self, _: &mut [B::Buf], _: &SumStep) -> Result<(), backend::Error> {
        Ok(())
    }

    fn sum(&mut self, _: &World, gradients: &mut [B::Buf], _: &SumStep) -> Result<Timed, Error> {
        let start = Instant::now();
        let Some(bucket) = gradients.last_mut() else { return Ok(Timed::in_place(start, 0)) };
        self.0.lock().reduce(bucket, Reduction::SumF32)?;
        Ok(Timed::in_place(start, bucket.len()))
    }
}

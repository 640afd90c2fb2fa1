//! What codes a chunk of gradients, and takes it to the other ranks and back: the codec's own code on the host, or the device that has
//! the gradients. Either way the sums are MPI's. Planned before the first step, like all that has memory.

use std::ops::Range;
use std::time::Instant;

use crate::backend::{self, Backend, Buffer, Coder, Draw};
use crate::comm::codec::{self, Bucket, Costs, Course, Entry, Key, Phases, Reducer, Settings, Share};
use crate::comm::{self, World};

/// A chunk's codec with its memory from step to step.
pub enum Coded<B: Backend> {
    /// By the codec's own code.
    Host(Reducer),
    /// By the device; codes alone come to the host.
    Device(Course, Box<dyn Coder<B>>),
}

/// One chunk of this rank's workers in one step.
pub struct Chunk<'a, B: Backend> {
    /// One buffer a worker, or their sum.
    pub gradients: &'a mut [B::Buf],
    /// Whose the first is.
    pub worker: usize,
    /// Of the codec's draws.
    pub key: Key,
    /// Whether a gradient that is not finite leaves NaN behind, for the device to leave the step out.
    pub scaled: bool,
    /// Whether the sum of as many f32 is timed, too.
    pub compare: bool,
}

/// When a sum began, once the device had the gradients, and what it cost.
pub type Took = (Instant, Costs);

impl<B: Backend> Coded<B> {
    /// For a chunk, on the rank with these workers; by `device` where it can.
    pub fn new(
        entry: &Entry,
        bucket: Bucket,
        settings: &Settings,
        mine: Range<usize>,
        device: Option<&B>,
    ) -> Result<Self, backend::Error> {
        let coding = (entry.coding)(&bucket, settings);
        if let Some((device, coding)) = device.zip(coding)
            && let Some(coder) = device.coder(&coding, mine.clone())?
        {
            return Ok(Coded::Device(Course::new(entry, bucket), coder));
        }
        Ok(Coded::Host(Reducer::new(entry, bucket, settings, mine)))
    }

    /// Leaves the sum over all workers of all ranks in the last buffer; collective. Errors of the device are the inner ones: the other
    /// ranks know nothing of them.
    pub fn sum(&mut self, world: &World, chunk: Chunk<'_, B>) -> Result<Result<Took, backend::Error>, comm::Error> {
        match self {
            Coded::Host(reducer) => on_host(reducer, world, chunk),
            Coded::Device(course, coder) => on_device(course, coder.as_mut(), world, chunk),
        }
    }

    /// What this worker carries over to the next step under error feedback: all of the bucket, in the gradients' own layout. Nothing
    /// for workers of other ranks.
    pub fn residual(&mut self, worker: usize) -> Result<Option<Vec<f32>>, backend::Error> {
        match self {
            Coded::Host(reducer) => Ok(reducer.residual(worker).map(|residual| residual.to_vec())),
            Coded::Device(_, coder) => coder.residual(worker).map(|residual| all(residual)).transpose(),
        }
    }

    /// Goes on with such a residual of one of this rank's workers.
    pub fn set_residual(&mut self, worker: usize, values: &[f32]) -> Result<(), backend::Error> {
        match self {
            Coded::Host(reducer) => reducer.residual(worker).map(|residual| residual.copy_from_slice(values)),
            Coded::Device(_, coder) => {
                return coder.residual(worker).map_or(Ok(()), |residual| residual.write(0, values));
            }
        };
        Ok(())
    }

    /// Bytes of memory, residuals included.
    pub fn memory(&self) -> usize {
        match self {
            Coded::Host(reducer) => reducer.memory(),
            Coded::Device(_, coder) => coder.memory(),
        }
    }
}

/// A buffer's elements.
pub fn all<B: Buffer>(buffer: &B) -> Result<Vec<f32>, backend::Error> {
    let mut values = vec![0.0; buffer.len()];
    buffer.read(0, &mut values)?;
    Ok(values)
}

/// NaN for all parameters; what pads the bucket stays as it is, or it would lose every later step, too.
fn spoil(bucket: &Bucket, values: &mut [f32]) {
    bucket.tensors.iter().for_each(|tensor| values[tensor.range.clone()].fill(f32::NAN));
}

fn on_host<B: Backend>(
    reducer: &mut Reducer,
    world: &World,
    chunk: Chunk<'_, B>,
) -> Result<Result<Took, backend::Error>, comm::Error> {
    let Chunk { gradients, worker, key, scaled, compare } = chunk;
    let shares = gradients.iter_mut().enumerate();
    let shares = shares.map(|(i, g)| Ok(Share { worker: worker + i, gradients: g.staged()? })).collect();
    let mut shares: Vec<Share<'_>> = match shares {
        Ok(shares) => shares,
        Err(error) => return Ok(Err(error)),
    };
    let start = Instant::now();
    let costs = match reducer.reduce(world, &mut shares, key, compare) {
        // all ranks have seen the same scales, so all leave the step out
        Err(comm::Error::NotFinite { .. }) if scaled => {
            shares.iter_mut().for_each(|share| spoil(reducer.bucket(), share.gradients));
            Costs::default()
        }
        other => other?,
    };
    let back = gradients.last_mut().map_or(Ok(()), Buffer::unstage);
    Ok(back.map(|()| (start, costs)))
}

fn on_device<B: Backend>(
    course: &mut Course,
    coder: &mut dyn Coder<B>,
    world: &World,
    chunk: Chunk<'_, B>,
) -> Result<Result<Took, backend::Error>, comm::Error> {
    let Chunk { gradients, key, scaled, compare, .. } = chunk;
    if let Err(error) = coder.begin(gradients) {
        return Ok(Err(error));
    }
    let start = Instant::now();
    let mut phases = OnDevice { coder, gradients };
    let done = match course.run(world, &mut phases, key, compare) {
        // as on the host
        Err(comm::Error::NotFinite { .. }) if scaled => phases.lose(course.bucket()).map(|()| Costs::default()),
        other => other?,
    };
    Ok(done.map(|costs| (start, costs)))
}

/// The phases on a device.
struct OnDevice<'a, B: Backend> {
    coder: &'a mut dyn Coder<B>,
    gradients: &'a mut [B::Buf],
}

impl<B: Backend> OnDevice<'_, B> {
    fn lose(&mut self, bucket: &Bucket) -> Result<(), backend::Error> {
        let Some(last) = self.gradients.last_mut() else { return Ok(()) };
        let values = last.staged()?;
        values.fill(0.0);
        spoil(bucket, values);
        last.unstage()
    }
}

impl<B: Backend> Phases for OnDevice<'_, B> {
    type Failure = backend::Error;

    fn scales(&mut self, _: &Bucket, scales: &mut Vec<u32>) -> Result<(), backend::Error> {
        self.coder.measure(self.gradients, scales)
    }

    fn encode(&mut self, _: &Bucket, scales: &[u32], key: Key) -> Result<(), backend::Error> {
        self.coder.encode(self.gradients, scales, Draw { seed: key.seed, step: key.step })
    }

    fn send(&mut self, world: &World) -> Result<(), comm::Error> {
        codec::sum_codes(world, self.coder.codes())
    }

    fn decode(&mut self, _: &Bucket, _: &[u32]) -> Result<(), backend::Error> {
        self.gradients.last_mut().map_or(Ok(()), |last| self.coder.decode(last))
    }
}

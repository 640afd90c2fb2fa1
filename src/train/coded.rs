//! A chunk's way to the other ranks where the device codes it: the codec's phases are the device's, the sums of the codes MPI's.

use std::time::Instant;

use crate::backend::{self, Backend, Buffer, Coder, Draw};
use crate::comm::codec::{self, Bucket, Costs, Key, Phases, Reducer};
use crate::comm::{self, World};

/// The phases on a device.
pub struct OnDevice<'a, B: Backend> {
    /// The bucket's.
    pub coder: &'a mut dyn Coder<B>,
    /// One buffer a worker of this rank.
    pub gradients: &'a mut [B::Buf],
    /// The first of them.
    pub worker: usize,
}

impl<B: Backend> Phases for OnDevice<'_, B> {
    type Failure = backend::Error;

    fn scales(&mut self, scales: &mut Vec<u32>) -> Result<(), backend::Error> {
        self.coder.measure(self.gradients, scales)
    }

    fn encode(&mut self, scales: &[u32], key: Key) -> Result<(), backend::Error> {
        self.coder.encode(self.gradients, scales, Draw { seed: key.seed, step: key.step, worker: self.worker })
    }

    fn send(&mut self, world: &World) -> Result<(), comm::Error> {
        codec::sum_codes(world, self.coder.codes())
    }

    fn decode(&mut self, _: &[u32]) -> Result<(), backend::Error> {
        self.gradients.last_mut().map_or(Ok(()), |last| self.coder.decode(last))
    }
}

impl<B: Backend> OnDevice<'_, B> {
    /// Leaves the sum over all workers of all ranks in the last buffer; when that began, once the device had the gradients, and what
    /// it cost. With `scaled`, a gradient that is not finite leaves NaN there, for the device to leave the step out.
    pub fn sum(
        mut self,
        world: &World,
        reducer: &mut Reducer,
        key: Key,
        (compare, scaled): (bool, bool),
    ) -> Result<Result<(Instant, Costs), backend::Error>, comm::Error> {
        if let Err(error) = self.coder.begin(self.gradients) {
            return Ok(Err(error));
        }
        let start = Instant::now();
        let done = match reducer.reduce_by(world, &mut self, key, compare) {
            // all ranks have seen the same scales, so all leave the step out
            Err(comm::Error::NotFinite { .. }) if scaled => self.spoil(reducer.bucket()).map(|()| Costs::default()),
            other => other?,
        };
        Ok(done.map(|costs| (start, costs)))
    }

    /// NaN for all parameters; what pads the bucket stays zero, or it would lose every later step, too.
    fn spoil(&mut self, bucket: &Bucket) -> Result<(), backend::Error> {
        let Some(last) = self.gradients.last_mut() else { return Ok(()) };
        let values = last.staged()?;
        values.fill(0.0);
        bucket.tensors.iter().for_each(|tensor| values[tensor.range.clone()].fill(f32::NAN));
        last.unstage()
    }
}

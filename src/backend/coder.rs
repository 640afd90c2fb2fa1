//! The codecs' phases on a device, so that codes alone cross the link to the host.

use super::{Backend, Error};
use crate::coding::{Codes, Draw};

/// One bucket's way into codes and back, on whichever thread. The phases come in the order of the methods, once a step, with the same
/// shares: one buffer a worker of this rank.
pub trait Coder<B: Backend>: Send {
    /// Waits until the shares are finished, as their last [`Backend::mark`] says.
    fn begin(&mut self, shares: &[B::Buf]) -> Result<(), Error>;

    /// The largest scale of each tensor over all shares, see [`Moments::scale`](super::Moments::scale). Nothing where no scales
    /// are needed.
    fn measure(&mut self, shares: &mut [B::Buf], scales: &mut Vec<u32>) -> Result<(), Error>;

    /// Brings the sum of the shares' codes to the host; the scales are those of all ranks.
    fn encode(&mut self, shares: &mut [B::Buf], scales: &[u32], draw: Draw) -> Result<(), Error>;

    /// The codes on the host.
    fn codes(&mut self) -> Codes<'_>;

    /// Starts their way back into gradients, and does not wait; what the device does with the buffer next does.
    fn decode(&mut self, into: &mut B::Buf) -> Result<(), Error>;

    /// What this worker carries over to the next step, as the bucket lies; none without feedback, and for workers of other ranks.
    fn residual(&mut self, worker: usize) -> Option<&mut B::Buf>;

    /// Bytes of memory of its own, on the device and on the host.
    fn memory(&self) -> usize;
}

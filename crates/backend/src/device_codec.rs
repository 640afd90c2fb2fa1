//! The phases of a codec on a device, so that only codes cross the link to the host.

use base::code_spec::{Codes, Draw};

use super::device_memory::DeviceMemory;
use super::error::Error;

/// The codec of one bucket, on any thread. Its phases run once a step in the order of the methods, with the same shares: one buffer for
/// each worker of this rank.
pub trait DeviceCodec<D: DeviceMemory>: Send {
    /// Waits until the shares are finished, as their last [`mark`](super::Queue::mark) says.
    fn begin(&mut self, shares: &[D::Buf]) -> Result<(), Error>;

    /// Writes the largest scale of each tensor over all shares, see [`Moments::scale`](super::Moments::scale); none where the codec
    /// needs no scales.
    fn measure(&mut self, shares: &mut [D::Buf], scales: &mut Vec<u32>) -> Result<(), Error>;

    /// Copies the sum of the shares' codes to the host; `scales` are the largest of all ranks.
    fn encode(&mut self, shares: &mut [D::Buf], scales: &[u32], draw: Draw) -> Result<(), Error>;

    /// The codes on the host.
    fn codes(&mut self) -> Codes<'_>;

    /// Starts turning the codes into gradients and does not wait; later work of the device on the buffer does.
    fn decode(&mut self, into: &mut D::Buf) -> Result<(), Error>;

    /// What this worker carries over to the next step, in the bucket's layout; none without error feedback, and for workers of other
    /// ranks.
    fn residual(&mut self, worker: usize) -> Option<&mut D::Buf>;

    /// Bytes of its memory on the device and on the host.
    fn memory(&self) -> usize;
}

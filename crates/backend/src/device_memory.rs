//! Memory of a device, and the passes over flat arrays of f32 in it.

use std::ops::Range;

use super::buffer::Buffer;
use super::error::Error;
use super::param_format::ParamFormat;
use super::region::{Apart, Region};
use super::tensor::TensorDesc;

/// A device as far as its memory goes. All binary passes take buffers of equal length.
pub trait DeviceMemory: Sized + 'static {
    /// An array of f32 in it.
    type Buf: Buffer;
    /// How a parameter lies in it.
    type Format: ParamFormat;
    /// What two operations share, where the second alone reads what the first one makes, so that each may do a part of the other's work;
    /// made before the first is planned.
    type Fusion: Default;

    /// Zeroed memory.
    fn alloc(&self, elems: usize) -> Result<Self::Buf, Error>;

    /// Memory of which these ranges will be taken, at times when none that overlaps is in use; they begin at multiples of 64
    /// elements. A device may give each range memory of its own.
    fn region(&self, elems: usize, parts: &[Range<usize>]) -> Result<Box<dyn Region<Self::Buf>>, Error> {
        Ok(Box::new(Apart::new(elems, parts, |elems| self.alloc(elems))?))
    }

    /// Bytes that a network may take at most; none where that is not known.
    fn free_bytes(&self) -> Result<Option<usize>, Error> {
        Ok(None)
    }

    /// Bytes of the work space that all operations share.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Bytes that a parameter takes, and its gradient as many.
    fn parameter_bytes(&self) -> usize {
        4
    }

    /// Number of f32 words that such activations take.
    fn words(&self, desc: &TensorDesc) -> usize {
        desc.words()
    }

    /// `to = from`.
    fn copy(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to = 0`.
    fn zero(&self, to: &mut Self::Buf) -> Result<(), Error>;

    /// `to += from`.
    fn add(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to *= factor`.
    fn scale(&self, to: &mut Self::Buf, factor: f32) -> Result<(), Error>;

    /// Moves every value into [-limit, limit]; NaN stays NaN.
    fn clamp(&self, x: &mut Self::Buf, limit: f32) -> Result<(), Error>;

    /// `to += weight * (from - to)`; a device with a [`Queue`](super::Queue) uses the weight given to
    /// [`begin_update`](super::Queue::begin_update).
    fn lerp(&self, to: &mut Self::Buf, from: &Self::Buf, weight: f32) -> Result<(), Error>;
}

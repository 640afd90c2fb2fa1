//! Flat memory for parameters, gradients and optimizer state: chunks that travel whole, and the places of tensors in them.

use super::Backend;

/// One tensor's place: chunk, first element, elements (padding of its format included).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which chunk.
    pub chunk: usize,
    /// First element in the chunk.
    pub offset: usize,
    /// Elements.
    pub len: usize,
}

impl Slot {
    /// Its range in the chunk.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Chunks of device memory. A gradient chunk is a bucket of the exchange: it moves to the thread that owns MPI and back,
/// so no two threads ever share one.
pub struct Arena<B: Backend> {
    /// The chunks, in the order in which backward finishes them.
    pub chunks: Vec<B::Buf>,
}

impl<B: Backend> Arena<B> {
    /// Zeroed chunks of these many elements.
    pub fn new(backend: &B, elems: &[usize]) -> Result<Self, super::Error> {
        let chunks = elems.iter().map(|&n| backend.alloc(n)).collect::<Result<_, _>>()?;
        Ok(Self { chunks })
    }
}

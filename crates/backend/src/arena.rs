//! Flat memory for parameters, gradients and optimizer state, in chunks that are summed over the ranks as a whole.

use super::buffer::Buffer;
use super::device_memory::DeviceMemory;
use super::error::Error;
use super::param_format::ParamFormat;

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
pub struct Arena<B: DeviceMemory> {
    /// The chunks, in the order in which backward finishes them.
    pub chunks: Vec<B::Buf>,
}

impl<B: DeviceMemory> Arena<B> {
    /// Zeroed chunks of these many elements.
    pub fn new(backend: &B, elems: &[usize]) -> Result<Self, Error> {
        let chunks = elems.iter().map(|&n| backend.alloc(n)).collect::<Result<_, _>>()?;
        Ok(Self { chunks })
    }

    /// Writes a parameter given in PyTorch's layout into its place.
    pub fn pack(&mut self, format: &B::Format, plain: &[f32], slot: Slot) -> Result<(), Error> {
        let chunk = &mut self.chunks[slot.chunk];
        if chunk.host().is_some() {
            return format.pack(plain, &mut chunk.staged()?[slot.range()]);
        }
        let mut packed = vec![0.0; slot.len];
        format.pack(plain, &mut packed)?;
        chunk.write(slot.offset, &packed)
    }

    /// Reads a parameter in PyTorch's layout, on any thread.
    pub fn unpack(&self, format: &B::Format, slot: Slot, plain: &mut [f32]) -> Result<(), Error> {
        let chunk = &self.chunks[slot.chunk];
        if let Some(all) = chunk.host() {
            return format.unpack(&all[slot.range()], plain);
        }
        let mut packed = vec![0.0; slot.len];
        chunk.read(slot.offset, &mut packed)?;
        format.unpack(&packed, plain)
    }
}

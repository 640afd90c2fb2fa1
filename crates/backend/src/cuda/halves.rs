//! Parameters and their gradients in the type of activations, where that is not f32: arenas in the layout of the f32 ones, which
//! [`ops::halves`](super::ops::halves) fills.

use super::driver::memory::CudaBuf;
use crate::{Buffer, Slot};

/// See the module; empty where activations are f32.
#[derive(Default)]
pub struct Halves {
    /// Chunk by chunk.
    pub weights: Vec<Half>,
    /// Those of networks that only run.
    pub kept: Vec<Half>,
    /// Chunk by chunk; what libraries leave there is brought to f32.
    pub gradients: Vec<CudaBuf>,
    /// Gradients that are in 16 bits alone, so far.
    pub open: Vec<Slot>,
    /// How those of each chunk are brought to f32.
    pub lists: Vec<Option<Pieces>>,
}

impl Halves {
    /// Number of this chunk of weights; none where there are no copies of it.
    pub fn chunk(&self, weights: &CudaBuf) -> Option<usize> {
        self.weights.iter().position(|half| half.of == (weights.address(), weights.len()))
    }

    /// The parameters of a chunk whose gradients are in 16 bits alone, by their places. The caller sees to these gradients.
    pub fn take_open(&mut self, chunk: usize) -> Vec<Slot> {
        let mut open: Vec<Slot> = self.open.extract_if(.., |slot| slot.chunk == chunk).collect();
        open.sort_by_key(|slot| slot.offset);
        open
    }
}

/// A chunk of weights.
pub struct Half {
    /// Address and elements of the f32 ones.
    pub of: (u64, usize),
    pub values: CudaBuf,
}

/// Parameters of a chunk in pieces.
pub struct Pieces {
    /// What they were made of.
    pub of: Vec<Slot>,
    pub list: CudaBuf,
    pub count: usize,
    /// Elements that the chunk must hold.
    pub end: usize,
}

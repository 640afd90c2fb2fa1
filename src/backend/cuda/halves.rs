//! Parameters and their gradients in the type of activations, where that is not f32: arenas in the layout of the f32 ones, which
//! [`ops::halves`](super::ops::halves) fills.

use super::driver::memory::CudaBuf;
use super::driver::slice::{Activation, Slice};
use super::settings::Precision;
use crate::backend::{Buffer, Slot};

/// See the module; empty where activations are f32.
#[derive(Default)]
pub struct Halves {
    /// Chunk by chunk.
    pub weights: Vec<Half>,
    /// Chunk by chunk; what libraries leave there is brought to f32.
    pub gradients: Vec<CudaBuf>,
    /// Gradients that are in 16 bits alone, so far.
    pub open: Vec<Slot>,
    /// How those of each chunk are brought to f32.
    pub lists: Vec<Option<Pieces>>,
}

impl Halves {
    /// The copy of a chunk of weights, for the optimizer to write; none where there is none of this chunk.
    pub fn beside(&self, precision: Precision, chunk: &CudaBuf) -> Option<Slice<'_, Activation>> {
        let half = self.weights.iter().find(|half| half.of == (chunk.address(), chunk.len()));
        half.map(|half| half.values.activations(precision))
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

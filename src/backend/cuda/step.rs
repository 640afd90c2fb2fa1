//! What an optimizer step reads on the GPU, kept from one step to the next: lists of pieces, work space for norms. A
//! recorded step finds it again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use super::driver::memory::CudaBuf;
use super::kernels::arena::Piece;
use crate::backend::ParamGroup;

/// Elements that a block takes at once.
const PIECE: usize = 4096;

/// See the module.
#[derive(Default)]
pub struct StepLists {
    /// By the address of the parameters.
    pub updates: RefCell<HashMap<u64, Pieces>>,
    /// By the address of the rates that they make.
    pub norms: RefCell<HashMap<u64, NormLists>>,
}

/// Ranges of one chunk in pieces.
pub struct Pieces {
    /// What they were made of.
    pub of: Vec<ParamGroup>,
    pub list: CudaBuf,
    pub count: usize,
}

/// What the norms of all tensors are made by.
pub struct NormLists {
    pub chunks: Vec<NormChunk>,
    /// Weight decay of each tensor, and whether it adapts.
    pub tensors: CudaBuf,
    pub count: usize,
    /// Sums of squares of the pieces of one chunk, f64.
    pub parts: CudaBuf,
    /// Sums of squares of all tensors: gradients, then weights; f64.
    pub sums: CudaBuf,
}

/// The tensors of one chunk.
pub struct NormChunk {
    /// Which.
    pub number: usize,
    pub pieces: CudaBuf,
    pub count: usize,
    /// First piece of each tensor, and where the last ends.
    pub first: CudaBuf,
    pub tensors: usize,
    /// Elements that the chunk must hold.
    pub end: usize,
}

/// One range cut into pieces.
pub fn cut(range: &Range<usize>, decay: f32, rate: usize) -> impl Iterator<Item = Piece> + use<> {
    let end = range.end;
    range.clone().step_by(PIECE).map(move |from| {
        let len = (end - from).min(PIECE);
        Piece { from: from as u64, len: len as u32, decay, rate: rate as u32, unused: 0 }
    })
}

//! Lists of pieces and work memory that an optimizer step uses on the GPU. They are kept between steps, because a
//! captured step uses the same addresses again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use super::driver::memory::CudaBuf;
use super::driver::slice::Slice;
use super::kernels::declarations::Piece;
use crate::{ParamGroup, Slot};

/// Maximum number of elements in a piece, which is the work of one thread block.
const PIECE: usize = 4096;

/// Lists and work memory of an optimizer step.
#[derive(Default)]
pub struct StepLists {
    /// The pieces of each bucket, by the address of its parameters and whether any gradients are stored in 16 bits.
    pub updates: RefCell<HashMap<(u64, bool), Pieces>>,
    /// Data for the norms, by the address of the resulting rates.
    pub norms: RefCell<HashMap<u64, NormLists>>,
    /// The units for adaptive clipping: for each address of a bucket's gradients, the ranges of the bucket. A range has
    /// the weights from which a layer computes an output.
    pub units: RefCell<HashMap<u64, PieceList>>,
}

/// Pieces of a bucket, on the GPU.
pub struct PieceList {
    pieces: CudaBuf,
    pub count: usize,
    /// The bucket must be at least this long.
    pub end: usize,
}

impl PieceList {
    /// Creates the list from pieces and their copy on the GPU.
    pub fn new(on_gpu: CudaBuf, pieces: &[Piece]) -> Self {
        let end = pieces.iter().map(|piece| piece.from as usize + piece.len as usize).max().unwrap_or(0);
        Self { pieces: on_gpu, count: pieces.len(), end }
    }

    pub fn slice(&self) -> Slice<'_, Piece> {
        self.pieces.slice()
    }
}

/// Ranges of a bucket, divided into pieces.
pub struct Pieces {
    /// The groups that the list was made for.
    pub of: Vec<ParamGroup>,
    /// Parameters with 16-bit gradients.
    pub narrow: Vec<Slot>,
    pub list: PieceList,
}

/// Data for computing the norms of all tensors.
pub struct NormLists {
    pub buckets: Vec<NormBucket>,
    /// For each tensor, its weight decay and whether its learning rate adapts.
    pub tensors: CudaBuf,
    pub count: usize,
    /// Each piece's sum of squares, in f64, for one bucket at a time.
    pub parts: CudaBuf,
    /// Each tensor's sum of squares, in f64: first gradients, then weights.
    pub sums: CudaBuf,
}

pub struct NormBucket {
    pub number: usize,
    pub pieces: PieceList,
    /// Index of each tensor's first piece, then the number of pieces.
    pub first: CudaBuf,
    pub tensors: usize,
}

/// Divides a range into pieces.
pub fn cut(range: &Range<usize>, decay: f32, rate: usize) -> impl Iterator<Item = Piece> + use<> {
    let end = range.end;
    range.clone().step_by(PIECE).map(move |from| {
        let len = (end - from).min(PIECE);
        Piece { from: from as u64, len: len as u32, decay, rate: rate as u32, narrow: 0 }
    })
}

/// A part of a range whose gradients all have the same type.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub range: Range<usize>,
    /// True if the gradients in this part are stored in 16 bits.
    pub narrow: bool,
}

/// Splits a range into the parameters of `narrow`, which must be sorted by offset, and the parts between them.
pub fn parts(range: &Range<usize>, narrow: &[Slot]) -> Vec<Part> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    let mut push = |range: Range<usize>, narrow| (!range.is_empty()).then(|| parts.push(Part { range, narrow }));
    for slot in narrow.iter().filter(|slot| range.contains(&slot.offset)) {
        push(at..slot.offset, false);
        push(slot.range(), true);
        at = slot.range().end;
    }
    push(at..range.end, false);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_and_split_it_at_slots() {
        let slot = |range: Range<usize>| Slot { bucket: 0, offset: range.start, len: range.len() };
        let narrow = [slot(0..5), slot(8..20), slot(20..24), slot(40..50)];
        let part = |range, narrow| Part { range, narrow };
        let want = [part(6..8, false), part(8..20, true), part(20..24, true), part(24..33, false)];
        assert_eq!(parts(&(6..33), &narrow), want);
        assert_eq!(parts(&(40..50), &narrow), [part(40..50, true)]);
        assert_eq!(parts(&(24..40), &narrow), [part(24..40, false)]);
        assert_eq!(parts(&(0..9), &[]), [part(0..9, false)]);
    }
}

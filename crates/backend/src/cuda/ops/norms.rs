//! Clipping by the norm of all gradients, and layer-wise rates, on the GPU: the host reads the norm later, if at all.

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Slice;
use crate::cuda::kernels::arena::{Piece, SquaresOfPieces, SumsOfRanges};
use crate::cuda::kernels::update::{Normed, StepRates};
use crate::cuda::shared::Shared;
use crate::cuda::step::{NormChunk, NormLists, cut};
use crate::{Arena, Error, Norms, Update};

/// For messages.
const NAME: &str = "norms of tensors";

impl NormLists {
    fn new(shared: &Shared, norms: &Norms) -> Result<Self, Error> {
        let (mut chunks, mut all) = (Vec::new(), Vec::new());
        // a chunk of frozen parameters has none
        for (number, tensors) in norms.tensors.iter().enumerate().filter(|(_, tensors)| !tensors.is_empty()) {
            let (mut list, mut first) = (Vec::<Piece>::new(), vec![0u32]);
            for tensor in tensors {
                list.extend(cut(&tensor.range, 0.0, 0));
                first.push(list.len() as u32);
                all.push(Normed {
                    decay: tensor.weight_decay,
                    adapts: u32::from(tensor.adapts),
                    factor: tensor.factor,
                });
            }
            chunks.push(NormChunk {
                number,
                pieces: shared.constant(&list, NAME)?,
                count: list.len(),
                first: shared.constant(&first, NAME)?,
                tensors: tensors.len(),
                end: tensors.iter().map(|t| t.range.end).max().unwrap_or(0),
            });
        }
        let (count, most) = (all.len(), chunks.iter().map(|chunk| chunk.count).max().unwrap_or(0));
        let (parts, sums) = (shared.alloc(2 * most, NAME)?, shared.alloc(4 * count, NAME)?);
        Ok(Self { chunks, tensors: shared.constant(&all, NAME)?, count, parts, sums })
    }

    /// Enqueues the sums of squares of all tensors of an arena.
    fn squares(&self, shared: &Shared, arena: &Arena<Cuda>, sums: Slice<'_, f64>) -> Result<(), Error> {
        let mut done = 0;
        for chunk in &self.chunks {
            let x = &arena.chunks[chunk.number];
            let (count, parts, end) = (chunk.count as u32, self.parts.slice(), chunk.end);
            let pieces = chunk.pieces.slice();
            shared.launch(&SquaresOfPieces { x: x.slice(), pieces, count, sums: parts, end })?;
            let (first, ranges, sums) = (chunk.first.slice(), chunk.tensors as u32, sums.range(done, chunk.tensors)?);
            shared.launch(&SumsOfRanges { pieces: parts, first, ranges, sums, end: chunk.count })?;
            done += chunk.tensors;
        }
        Ok(())
    }
}

/// See [`crate::Backend::rates`].
pub fn rates(
    shared: &Shared,
    norms: &Norms,
    update: &Update,
    weights: &Arena<Cuda>,
    gradients: &Arena<Cuda>,
    to: &CudaBuf,
) -> Result<(), Error> {
    let mut known = shared.lists.norms.borrow_mut();
    let lists = match known.remove(&to.address()) {
        Some(lists) => lists,
        None => NormLists::new(shared, norms)?,
    };
    let of_gradients = lists.sums.slice::<f64>().range(0, lists.count)?;
    let of_weights = lists.sums.slice::<f64>().range(lists.count, lists.count)?;
    lists.squares(shared, gradients, of_gradients)?;
    if update.rule.adapts() {
        lists.squares(shared, weights, of_weights)?;
    }
    let blocks = shared.blocks.borrow();
    shared.launch(&StepRates {
        gradients: of_gradients,
        weights: of_weights,
        tensors: lists.tensors.slice(),
        count: lists.count as u32,
        numbers: blocks.inbox.numbers()?,
        limit: norms.limit.unwrap_or(f64::INFINITY),
        rates: to.slice(),
    })?;
    known.insert(to.address(), lists);
    Ok(())
}

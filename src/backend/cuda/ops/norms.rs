//! What limiting the norm of all gradients and layer-wise rates make of a step, on the card: the host learns of it later, if at all.

use crate::backend::cuda::Cuda;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{At, F64, U32};
use crate::backend::cuda::kernels::module::THREADS;
use crate::backend::cuda::ops::update::{PIECE_WORDS, cut, numbers};
use crate::backend::cuda::shared::Shared;
use crate::backend::update::rates;
use crate::backend::{Arena, Error, Norms, Update};

/// What never changes, on the card already, and work space.
pub struct Lists {
    chunks: Vec<Chunk>,
    /// Weight decay of each tensor, and whether it adapts.
    tensors: CudaBuf,
    count: usize,
    /// Sums of squares of the pieces of one chunk, and of all tensors: gradients, then weights; f64.
    parts: CudaBuf,
    sums: CudaBuf,
}

struct Chunk {
    pieces: CudaBuf,
    count: usize,
    /// First piece of each tensor, and where the last ends.
    first: CudaBuf,
    tensors: usize,
    /// Elements that it must hold.
    end: usize,
}

impl Lists {
    fn new(shared: &Shared, norms: &Norms) -> Result<Self, Error> {
        let (mut chunks, mut words) = (Vec::new(), Vec::new());
        for tensors in &norms.tensors {
            let (mut list, mut first) = (Vec::new(), vec![0]);
            for tensor in tensors {
                cut(&tensor.range, 0.0, 0, &mut list);
                first.push((list.len() / PIECE_WORDS) as u32);
                let decay = tensor.weight_decay.to_bits();
                words.extend([decay as u32, (decay >> 32) as u32, u32::from(tensor.adapts), 0]);
            }
            chunks.push(Chunk {
                pieces: shared.constant(&list, NAME)?,
                count: list.len() / PIECE_WORDS,
                first: shared.constant(&first, NAME)?,
                tensors: tensors.len(),
                end: tensors.iter().map(|t| t.range.end).max().unwrap_or(0),
            });
        }
        let (count, most) = (words.len() / 4, chunks.iter().map(|chunk| chunk.count).max().unwrap_or(0));
        let (parts, sums) = (shared.alloc(2 * most, NAME)?, shared.alloc(4 * count, NAME)?);
        Ok(Self { chunks, tensors: shared.constant(&words, NAME)?, count, parts, sums })
    }

    /// Enqueues the sums of squares of all tensors of an arena, from `to` on.
    fn squares(&self, shared: &Shared, arena: &Arena<Cuda>, mut to: u64) -> Result<(), Error> {
        for (chunk, x) in self.chunks.iter().zip(&arena.chunks) {
            x.check(0, chunk.end)?;
            let parts = At(self.parts.address());
            let pieces = [At(x.address()), At(chunk.pieces.address()), U32(chunk.count as u32), parts];
            let tensors = [parts, At(chunk.first.address()), U32(chunk.tensors as u32), At(to)];
            // SAFETY: the chunk holds all pieces (checked), the rest was made for as many pieces and tensors.
            unsafe {
                shared.launch("squares_of_pieces", shared.grid(chunk.count * THREADS as usize), &pieces)?;
                shared.launch("sums_of_ranges", shared.grid(chunk.tensors), &tensors)?;
            }
            to += 8 * chunk.tensors as u64;
        }
        Ok(())
    }
}

/// For messages.
const NAME: &str = "norms of tensors";

/// See [`crate::backend::Backend::rates`].
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
        None => Lists::new(shared, norms)?,
    };
    to.check(0, rates::FIRST + lists.count)?;
    let of_weights = lists.sums.address() + 8 * lists.count as u64;
    lists.squares(shared, gradients, lists.sums.address())?;
    if update.rule.adapts() {
        lists.squares(shared, weights, of_weights)?;
    }
    let limit = F64(norms.limit.unwrap_or(f64::INFINITY));
    let sums = [At(lists.sums.address()), At(of_weights), At(lists.tensors.address()), U32(lists.count as u32)];
    let args = [&sums[..], &[At(numbers(shared)?), limit, At(to.address())]].concat();
    // SAFETY: the rates have room for all tensors (checked), the rest was made for as many.
    unsafe { shared.launch("step_rates", (1, 1), &args)? };
    known.insert(to.address(), lists);
    Ok(())
}

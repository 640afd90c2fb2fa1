//! Parameters and their gradients in 16 bits. The optimizer updates the 16-bit weights together with the f32 weights.
//! Gradients that a library writes in 16 bits are converted to f32 bucket by bucket.

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::declarations::{CastGradients, CastWeights, Piece};
use crate::cuda::shared::{CastList, NarrowBucket, NarrowParams, Shared};
use crate::cuda::step::{PieceList, cut};
use crate::{Arena, Buffer, Error, Precision, Slot};

const GRADIENTS: &str = "gradients in 16 bits";

/// Returns a parameter as the libraries read it: from the f32 arena or from its 16-bit copy.
pub fn weights<'a>(
    precision: Precision,
    narrow_params: &'a NarrowParams,
    params: &'a Arena<Cuda>,
    slot: Slot,
) -> Result<Slice<'a, Activation>, Error> {
    if precision == Precision::F32 {
        return params.buckets[slot.bucket].activations(precision).range(slot.offset, slot.len);
    }
    let not_told =
        || Error::Unsupported { op: "weights".into(), why: "the device was not notified of their change".into() };
    let bucket = &params.buckets[slot.bucket];
    let copy =
        narrow_params.untrained.iter().find(|bucket_copy| bucket_copy.source == (bucket.address(), bucket.len()));
    let bucket_copy = copy.or_else(|| narrow_params.weights.get(slot.bucket)).ok_or_else(not_told)?;
    bucket_copy.values.activations(precision).range(slot.offset, slot.len)
}

/// Copies all weights to 16 bits again, after something other than the optimizer has changed them.
pub fn copy_weights(shared: &Shared, params: &Arena<Cuda>) -> Result<(), Error> {
    if shared.settings.precision == Precision::F32 {
        return Ok(());
    }
    let buckets = &params.buckets;
    let NarrowParams { weights, untrained, .. } = &mut *shared.narrow_params.borrow_mut();
    // drop copies for networks that no longer exist
    untrained.retain(|bucket_copy| buckets.iter().all(|bucket| bucket.address() != bucket_copy.source.0));
    if !weights.iter().map(|bucket_copy| bucket_copy.source.1).eq(buckets.iter().map(Buffer::len)) {
        // a captured pass may use the old buffers
        shared.note_moved(!weights.is_empty());
        *weights = buckets.iter().map(|bucket| empty_copy(shared, bucket)).collect::<Result<_, Error>>()?;
    }
    for (bucket_copy, bucket) in weights.iter_mut().zip(buckets) {
        bucket_copy.source.0 = bucket.address();
        cast(shared, bucket, bucket_copy)?;
    }
    Ok(())
}

/// Allocates the 16-bit copy of a bucket of weights.
fn empty_copy(shared: &Shared, bucket: &CudaBuf) -> Result<NarrowBucket, Error> {
    let values = shared.alloc(bucket.len().div_ceil(2), "weights in 16 bits")?;
    Ok(NarrowBucket { source: (bucket.address(), bucket.len()), values })
}

/// Enqueues the conversion of a bucket of weights to 16 bits.
fn cast(shared: &Shared, bucket: &CudaBuf, bucket_copy: &NarrowBucket) -> Result<(), Error> {
    let to = bucket_copy.values.activations(shared.settings.precision);
    shared.launch(&CastWeights { from: bucket.slice(), to, n: bucket.len() as u64 })
}

/// Copies the weights of a network that is not trained to 16 bits. Buffers from earlier copies are used again.
pub fn copy_untrained_weights(shared: &Shared, params: &Arena<Cuda>) -> Result<(), Error> {
    if shared.settings.precision == Precision::F32 {
        return Ok(());
    }
    let untrained = &mut shared.narrow_params.borrow_mut().untrained;
    for bucket in &params.buckets {
        let of = (bucket.address(), bucket.len());
        let known = untrained.iter().position(|bucket_copy| bucket_copy.source == of);
        let place = known.unwrap_or(untrained.len());
        if known.is_none() {
            untrained.push(empty_copy(shared, bucket)?);
        }
        cast(shared, bucket, &untrained[place])?;
    }
    Ok(())
}

/// Returns the destination for a library that writes a parameter's gradient: the f32 arena, or a 16-bit buffer until
/// [`convert_gradients`] converts the bucket.
pub fn gradient<'a>(
    shared: &Shared,
    narrow_params: &'a mut NarrowParams,
    gradients: &'a Arena<Cuda>,
    slot: Slot,
) -> Result<Slice<'a, Activation>, Error> {
    let precision = shared.settings.precision;
    if precision == Precision::F32 {
        return gradients.buckets[slot.bucket].activations(precision).range(slot.offset, slot.len);
    }
    let len = gradients.buckets[slot.bucket].len().div_ceil(2);
    while narrow_params.gradients.len() <= slot.bucket {
        narrow_params.gradients.push(CudaBuf::default());
    }
    let bucket = &mut narrow_params.gradients[slot.bucket];
    if bucket.len() < len {
        shared.note_moved(!bucket.is_empty());
        *bucket = shared.alloc(len, GRADIENTS)?;
    }
    // the slot is already listed if a capture failed and the pass is enqueued again
    if !narrow_params.open.contains(&slot) {
        narrow_params.open.push(slot);
    }
    bucket.activations(precision).range(slot.offset, slot.len)
}

/// Converts a bucket's gradients to f32 where they exist only in 16 bits.
pub fn convert_gradients(shared: &Shared, bucket: usize, to: &CudaBuf) -> Result<(), Error> {
    let mut narrow_params = shared.narrow_params.borrow_mut();
    let of = narrow_params.take_open(bucket);
    if of.is_empty() {
        return Ok(());
    }
    let places = narrow_params.lists.len().max(bucket + 1);
    narrow_params.lists.resize_with(places, || None);
    let pieces = match narrow_params.lists[bucket].take() {
        Some(pieces) if pieces.of == of => pieces,
        // a captured pass may use the old list
        other => {
            shared.note_moved(other.is_some());
            pieces(shared, of)?
        }
    };
    let from = narrow_params.gradients[bucket].activations(shared.settings.precision);
    let PieceList { count, end, .. } = pieces.list;
    shared.launch(&CastGradients { pieces: pieces.list.slice(), count: count as u32, from, to: to.slice(), end })?;
    narrow_params.lists[bucket] = Some(pieces);
    Ok(())
}

fn pieces(shared: &Shared, of: Vec<Slot>) -> Result<CastList, Error> {
    let list: Vec<Piece> = of.iter().flat_map(|slot| cut(&slot.range(), 0.0, 0)).collect();
    Ok(CastList { of, list: PieceList::new(shared.constant(&list, GRADIENTS)?, &list) })
}

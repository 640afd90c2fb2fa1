//! Parameters and their gradients in 16 bits. The optimizer updates the 16-bit weights together with the f32 weights.
//! Gradients that a library writes in 16 bits are converted to f32 bucket by bucket.

use crate::Precision;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::declarations::CastWeights;
use crate::cuda::kernels::declarations::{CastGradients, Piece};
use crate::cuda::shared::Shared;
use crate::cuda::shared::{Half, NarrowParams, Pieces};
use crate::cuda::step::cut;
use crate::{Arena, Buffer, Error, Slot};

const GRADIENTS: &str = "gradients in 16 bits";

/// Returns a parameter as the libraries read it: from the f32 arena or from its 16-bit copy.
pub fn weights<'a>(
    precision: Precision,
    halves: &'a NarrowParams,
    params: &'a Arena<Cuda>,
    slot: Slot,
) -> Result<Slice<'a, Activation>, Error> {
    if precision == Precision::F32 {
        return params.buckets[slot.bucket].activations(precision).range(slot.offset, slot.len);
    }
    let not_told =
        || Error::Unsupported { op: "weights".into(), why: "the device was not notified of their change".into() };
    let bucket = &params.buckets[slot.bucket];
    let kept = halves.kept.iter().find(|half| half.of == (bucket.address(), bucket.len()));
    let half = kept.or_else(|| halves.weights.get(slot.bucket)).ok_or_else(not_told)?;
    half.values.activations(precision).range(slot.offset, slot.len)
}

/// Copies all weights to 16 bits again, after something other than the optimizer has changed them.
pub fn renew(shared: &Shared, params: &Arena<Cuda>) -> Result<(), Error> {
    let precision = shared.settings.precision;
    if precision == Precision::F32 {
        return Ok(());
    }
    let buckets = &params.buckets;
    let NarrowParams { weights, kept, .. } = &mut *shared.halves.borrow_mut();
    // drop copies for networks that no longer exist
    kept.retain(|half| buckets.iter().all(|bucket| bucket.address() != half.of.0));
    if !weights.iter().map(|half| half.of.1).eq(buckets.iter().map(Buffer::len)) {
        // a captured pass may use the old buffers
        shared.moved.set(shared.moved.get() + u64::from(!weights.is_empty()));
        let half = |bucket: &CudaBuf| {
            let values = shared.alloc(bucket.len().div_ceil(2), "weights in 16 bits")?;
            Ok(Half { of: (bucket.address(), bucket.len()), values })
        };
        *weights = buckets.iter().map(half).collect::<Result<_, Error>>()?;
    }
    for (half, bucket) in weights.iter_mut().zip(buckets) {
        half.of.0 = bucket.address();
        let to = half.values.activations(precision);
        shared.launch(&CastWeights { from: bucket.slice(), to, n: bucket.len() as u64 })?;
    }
    Ok(())
}

/// Copies a network's weights to 16 bits. The network is not trained, and the copies are reused if they exist.
pub fn keep(shared: &Shared, params: &Arena<Cuda>) -> Result<(), Error> {
    let precision = shared.settings.precision;
    if precision == Precision::F32 {
        return Ok(());
    }
    let kept = &mut shared.halves.borrow_mut().kept;
    for bucket in &params.buckets {
        let of = (bucket.address(), bucket.len());
        let known = kept.iter().position(|half| half.of == of);
        let half = match known {
            Some(place) => &kept[place],
            None => {
                kept.push(Half { of, values: shared.alloc(bucket.len().div_ceil(2), "weights in 16 bits")? });
                &kept[kept.len() - 1]
            }
        };
        let to = half.values.activations(precision);
        shared.launch(&CastWeights { from: bucket.slice(), to, n: bucket.len() as u64 })?;
    }
    Ok(())
}

/// Returns the destination for a library that writes a parameter's gradient: the f32 arena, or a 16-bit buffer until
/// [`finish`] converts the bucket.
pub fn gradient<'a>(
    shared: &Shared,
    halves: &'a mut NarrowParams,
    gradients: &'a Arena<Cuda>,
    slot: Slot,
) -> Result<Slice<'a, Activation>, Error> {
    let precision = shared.settings.precision;
    if precision == Precision::F32 {
        return gradients.buckets[slot.bucket].activations(precision).range(slot.offset, slot.len);
    }
    let len = gradients.buckets[slot.bucket].len().div_ceil(2);
    while halves.gradients.len() <= slot.bucket {
        halves.gradients.push(CudaBuf::default());
    }
    let bucket = &mut halves.gradients[slot.bucket];
    if bucket.len() < len {
        shared.moved.set(shared.moved.get() + u64::from(!bucket.is_empty()));
        *bucket = shared.alloc(len, GRADIENTS)?;
    }
    // the slot is already listed if a capture failed and the pass is enqueued again
    if !halves.open.contains(&slot) {
        halves.open.push(slot);
    }
    bucket.activations(precision).range(slot.offset, slot.len)
}

/// Converts a bucket's gradients to f32 where they exist only in 16 bits.
pub fn finish(shared: &Shared, bucket: usize, to: &CudaBuf) -> Result<(), Error> {
    let mut halves = shared.halves.borrow_mut();
    let of = halves.take_open(bucket);
    if of.is_empty() {
        return Ok(());
    }
    let places = halves.lists.len().max(bucket + 1);
    halves.lists.resize_with(places, || None);
    let pieces = match halves.lists[bucket].take() {
        Some(pieces) if pieces.of == of => pieces,
        // a captured pass may use the old list
        other => {
            shared.moved.set(shared.moved.get() + u64::from(other.is_some()));
            pieces(shared, of)?
        }
    };
    let from = halves.gradients[bucket].activations(shared.settings.precision);
    let (list, count, end) = (pieces.list.slice(), pieces.count as u32, pieces.end);
    shared.launch(&CastGradients { pieces: list, count, from, to: to.slice(), end })?;
    halves.lists[bucket] = Some(pieces);
    Ok(())
}

fn pieces(shared: &Shared, of: Vec<Slot>) -> Result<Pieces, Error> {
    let list: Vec<Piece> = of.iter().flat_map(|slot| cut(&slot.range(), 0.0, 0)).collect();
    let (count, end) = (list.len(), of.iter().map(|slot| slot.range().end).max().unwrap_or(0));
    Ok(Pieces { of, list: shared.constant(&list, GRADIENTS)?, count, end })
}

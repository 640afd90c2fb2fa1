//! The buffers of a codec that rounds. The encoded gradients of a rounded tensor (its codes) are small integers, packed
//! into lanes of 64-bit words. Exempt tensors are encoded as in the codec `exact`. The codec defines the meaning of a
//! code and the scale of a tensor.

use super::exact::Exempt;
use super::packed::{Lanes, Packed};
use super::philox::Stream;
use super::{Bucket, Key, Share, Tensor};
use crate::error::Error;
use crate::world::World;

/// The encoded tensors of a bucket.
pub(super) struct Coded {
    exempt: Exempt,
    packed: Packed,
}

impl Coded {
    /// Allocates the buffers. `most` is the largest code that a worker can produce.
    pub fn new(bucket: &Bucket, workers: usize, most: u64) -> Self {
        let lanes = Lanes::holding(most * workers as u64);
        Self { exempt: Exempt::new(bucket, workers), packed: Packed::new(bucket, lanes) }
    }

    /// Iterates over the rounded tensors with their index in the bucket.
    pub fn tensors<'a>(&self, bucket: &'a Bucket) -> impl Iterator<Item = (usize, &'a Tensor)> {
        self.packed.tensors(bucket)
    }

    /// Returns the number of elements that are encoded at a time.
    pub fn block(&self) -> usize {
        self.packed.block()
    }

    /// Computes the scale of each tensor as the bits of an f32. It is the maximum of `scale` over these workers.
    pub fn scales(
        &self,
        bucket: &Bucket,
        shares: &[Share<'_>],
        scales: &mut Vec<u32>,
        scale: impl Fn(&Tensor, &[f32]) -> u32,
    ) {
        self.exempt.scales(bucket, shares, scales);
        for (index, tensor) in self.tensors(bucket) {
            let own = shares.iter().map(|share| scale(tensor, &share.gradients[tensor.range.clone()]));
            scales[index] = own.max().unwrap_or(0);
        }
    }

    /// Encodes the gradients of these workers and adds up the codes. `code` gets gradients, an equal number of random
    /// words, and the scale. It replaces the random words by codes.
    pub fn encode(
        &mut self,
        bucket: &Bucket,
        scales: &[u32],
        shares: &[Share<'_>],
        key: Key,
        code: fn(&[f32], &mut [u32], f32),
    ) {
        self.exempt.encode(bucket, scales, shares);
        self.packed.clear();
        let tensors: Vec<_> = self.tensors(bucket).map(|(index, tensor)| (scales[index], tensor)).collect();
        for (number, (scale, tensor)) in tensors.into_iter().enumerate().filter(|(_, (scale, _))| *scale > 0) {
            for share in shares {
                let stream = Stream::new(key, share.worker, tensor.parameter);
                let gradients = &share.gradients[tensor.range.clone()];
                self.packed.add(number, gradients, stream, |g, words| code(g, words, f32::from_bits(scale)));
            }
        }
    }

    /// Sums the codes over all ranks.
    pub fn send(&mut self, world: &World) -> Result<(), Error> {
        world.sum_u64(self.packed.words_mut())?;
        self.exempt.send(world)
    }

    /// Writes the sum of the gradients: `(sum of codes - zero) / one * scale`, for each element. `zero` is the sum of
    /// all workers' offsets. `one` is the code of a gradient that equals the scale.
    pub fn decode(&mut self, bucket: &Bucket, scales: &[u32], (zero, one): (i32, f32), into: &mut [f32]) {
        self.exempt.decode(bucket, scales, into);
        for (number, (index, tensor)) in self.tensors(bucket).enumerate() {
            let into = &mut into[tensor.range.clone()];
            match scales[index] {
                0 => into.fill(0.0),
                bits => self.packed.decode(number, (zero, one), f32::from_bits(bits), into),
            }
        }
    }

    pub fn memory(&self) -> usize {
        self.exempt.memory() + self.packed.memory()
    }
}

//! The tensors that a codec which rounds leaves out: integers of [`exact`](super::exact), side by side, so that one sum takes them all.

use std::ops::Range;

use super::bucket::{Bucket, Share};
use super::exact::{decode, encode, largest};
use super::lanes::head_room;
use crate::error::Error;
use crate::world::World;

/// The exempt tensors of a bucket.
pub(super) struct Exempt {
    /// Index of each tensor in the bucket, and its place in `codes`.
    places: Vec<(usize, Range<usize>)>,
    /// Bits of integers.
    codes: Vec<f32>,
    room: u32,
}

impl Exempt {
    /// Room for them.
    pub fn new(bucket: &Bucket, workers: usize) -> Self {
        let (mut places, mut end) = (Vec::new(), 0);
        for (index, tensor) in bucket.tensors.iter().enumerate().filter(|(_, t)| t.exempt) {
            let start = end;
            end += tensor.range.len();
            places.push((index, start..end));
        }
        Self { places, codes: vec![0.0; end], room: head_room(workers) }
    }

    /// Their scales, and 0 for all other tensors.
    pub fn scales(&self, bucket: &Bucket, shares: &[Share<'_>], scales: &mut Vec<u32>) {
        scales.resize(bucket.tensors.len(), 0);
        for (index, _) in &self.places {
            let range = &bucket.tensors[*index].range;
            let most = shares.iter().map(|share| largest(&share.gradients[range.clone()])).max();
            scales[*index] = most.unwrap_or(0);
        }
    }

    /// Makes the integers.
    pub fn encode(&mut self, bucket: &Bucket, scales: &[u32], shares: &[Share<'_>]) {
        let Some((last, others)) = shares.split_last() else { return };
        for (index, place) in &self.places {
            let range = &bucket.tensors[*index].range;
            let codes = &mut self.codes[place.clone()];
            codes.copy_from_slice(&last.gradients[range.clone()]);
            let others = others.iter().map(|share| &share.gradients[range.clone()]);
            encode(codes, others, scales[*index], self.room);
        }
    }

    /// Adds them over all ranks.
    pub fn send(&mut self, world: &World) -> Result<(), Error> {
        world.sum_i32_bits(&mut self.codes)
    }

    /// Writes their gradients.
    pub fn decode(&mut self, bucket: &Bucket, scales: &[u32], into: &mut [f32]) {
        for (index, place) in &self.places {
            let codes = &mut self.codes[place.clone()];
            decode(codes, scales[*index], self.room);
            into[bucket.tensors[*index].range.clone()].copy_from_slice(codes);
        }
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        size_of_val(self.codes.as_slice())
    }
}

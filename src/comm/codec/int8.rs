//! The codec `int8`: each worker's gradient g becomes an integer from -127 to 127, g / s * 127 rounded up or down at random
//! so that its mean is right; s is the largest |g| of the tensor over all workers. Codes plus 127 travel in lanes of 8 + h bits,
//! V <= 2^h.

use super::bucket::{Bucket, Key, Share};
use super::entry::{CODED, Codec, Entry, Settings};
use super::exact::largest;
use super::exempt::Exempt;
use super::integers;
use super::lanes::Lanes;
use super::packed::Packed;
use super::philox::Stream;
use crate::comm::error::Error;
use crate::comm::world::World;
use crate::simd::simd;

/// In the catalogue.
pub const ENTRY: Entry = Entry {
    name: "int8",
    about: "8-bit integers, rounded at random without bias, one scale a tensor: the same bits on any number of ranks",
    keys: CODED,
    most_workers: MOST_WORKERS,
    integer: true,
    biased: false,
    make: |bucket, settings, _| Box::new(Int8::new(bucket, settings)),
    zeros: None,
    spec: |bucket, settings| Some(integers::describe(bucket, settings, Some((MOST as u32, 0.0)))),
};

/// Beyond, a lane would have more than 16 bits.
const MOST_WORKERS: usize = 256;

/// The largest code.
const MOST: f32 = 127.0;

simd! {
    /// Replaces random words by codes plus 127.
    pub(super) fn code(gradients: &[f32], words: &mut [u32], scale: f32) {
        for (word, g) in words.iter_mut().zip(gradients) {
            let size = g.abs() / scale * MOST;
            let below = size.floor();
            let draw = (*word >> 8) as i32 as f32;
            let up = u32::from(draw < (size - below) * (1 << 24) as f32);
            // integers below 2^23 lie in the low bits once 2^23 is added
            let magnitude = ((below + (1 << 23) as f32).to_bits() & 0xff) + up;
            let negative = g.to_bits() >> 31;
            *word = (MOST as u32).wrapping_add((magnitude ^ negative.wrapping_neg()).wrapping_add(negative));
        }
    }
}

struct Int8 {
    exempt: Exempt,
    packed: Packed,
    workers: usize,
}

impl Int8 {
    fn new(bucket: &Bucket, settings: &Settings) -> Self {
        let workers = settings.workers;
        let lanes = Lanes::holding(2 * MOST as u64 * workers as u64);
        Self { exempt: Exempt::new(bucket, workers), packed: Packed::new(bucket, lanes), workers }
    }
}

impl Codec for Int8 {
    fn scales(&mut self, bucket: &Bucket, shares: &mut [Share<'_>], scales: &mut Vec<u32>) {
        self.exempt.scales(bucket, shares, scales);
        for (index, tensor) in self.packed.tensors(bucket) {
            let most = shares.iter().map(|share| largest(&share.gradients[tensor.range.clone()])).max();
            scales[index] = most.unwrap_or(0);
        }
    }

    fn encode(&mut self, bucket: &Bucket, scales: &[u32], shares: &mut [Share<'_>], key: Key) {
        self.exempt.encode(bucket, scales, shares);
        self.packed.clear();
        let coded: Vec<_> = self.packed.tensors(bucket).map(|(index, tensor)| (scales[index], tensor)).collect();
        for (number, (scale, tensor)) in coded.into_iter().enumerate().filter(|(_, (scale, _))| *scale > 0) {
            for share in &*shares {
                let stream = Stream::new(key, share.worker, tensor.parameter);
                let gradients = &share.gradients[tensor.range.clone()];
                self.packed.add(number, gradients, stream, |g, words| code(g, words, f32::from_bits(scale)));
            }
        }
    }

    fn send(&mut self, world: &World, _: &mut [Share<'_>]) -> Result<(), Error> {
        world.sum_u64(self.packed.words_mut())?;
        self.exempt.send(world)
    }

    fn decode(&mut self, bucket: &Bucket, scales: &[u32], into: &mut [f32]) {
        self.exempt.decode(bucket, scales, into);
        for (number, (index, tensor)) in self.packed.tensors(bucket).enumerate() {
            let into = &mut into[tensor.range.clone()];
            let zero = MOST as i32 * self.workers as i32;
            match scales[index] {
                0 => into.fill(0.0),
                bits => self.packed.decode(number, (zero, MOST), f32::from_bits(bits), into),
            }
        }
    }

    fn memory(&self) -> usize {
        self.exempt.memory() + self.packed.memory()
    }
}

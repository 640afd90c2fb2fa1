//! The codec `int8`. Each worker's gradient g becomes an integer from -127 to 127 (its code): g / s * 127, rounded up
//! or down at random so that the expected value is exact. The scale s is the largest |g| of the tensor over all
//! workers. For V <= 2^h workers, codes plus 127 are sent in lanes of 8 + h bits.

use base::simd;

use super::coded::Coded;
use super::exact;
use super::exact::largest;
use super::{Bucket, Key, Share};
use super::{CODED, Codec, Entry};
use crate::error::Error;
use crate::world::World;

pub const ENTRY: Entry = Entry {
    name: "int8",
    about: "8-bit integers with one scale per tensor, rounded at random without bias, the same result on any number of ranks",
    keys: CODED,
    most_workers: MOST_WORKERS,
    integer: true,
    biased: false,
    make: |bucket, settings, _| {
        let workers = settings.workers;
        Box::new(Int8 { coded: Coded::new(bucket, workers, 2 * MOST as u64), workers })
    },
    zeros: None,
    spec: |bucket, settings| Some(exact::describe(bucket, settings, Some((MOST as u32, 0.0)))),
};

/// Largest number of workers. With more, a lane would need more than 16 bits.
const MOST_WORKERS: usize = 256;

/// The largest absolute value of a code.
const MOST: f32 = 127.0;

simd! {
    /// Encodes gradients. `words` contains random words, which are replaced by the codes plus 127.
    pub(super) fn code(gradients: &[f32], words: &mut [u32], scale: f32) {
        for (word, g) in words.iter_mut().zip(gradients) {
            let size = g.abs() / scale * MOST;
            let below = size.floor();
            let draw = (*word >> 8) as i32 as f32;
            let up = u32::from(draw < (size - below) * (1 << 24) as f32);
            // Adding 2^23 to an integer below 2^23 leaves the integer in the low bits.
            let magnitude = ((below + (1 << 23) as f32).to_bits() & 0xff) + up;
            let negative = g.to_bits() >> 31;
            *word = (MOST as u32).wrapping_add((magnitude ^ negative.wrapping_neg()).wrapping_add(negative));
        }
    }
}

struct Int8 {
    coded: Coded,
    workers: usize,
}

impl Codec for Int8 {
    fn scales(&mut self, bucket: &Bucket, shares: &mut [Share<'_>], scales: &mut Vec<u32>) {
        self.coded.scales(bucket, shares, scales, |_, gradients| largest(gradients));
    }

    fn encode(&mut self, bucket: &Bucket, scales: &[u32], shares: &mut [Share<'_>], key: Key) {
        self.coded.encode(bucket, scales, shares, key, code);
    }

    fn send(&mut self, world: &World, _: &mut [Share<'_>]) -> Result<(), Error> {
        self.coded.send(world)
    }

    fn decode(&mut self, bucket: &Bucket, scales: &[u32], into: &mut [f32]) {
        let zero = MOST as i32 * self.workers as i32;
        self.coded.decode(bucket, scales, (zero, MOST), into);
    }

    fn memory(&self) -> usize {
        self.coded.memory()
    }
}

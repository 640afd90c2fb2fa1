//! The codec `exact`: 32-bit fixed point. Per tensor, with 2^e above the largest |g| of all workers and V <= 2^h of them,
//! q = rint(g 2^(30 - h - e)), so that |q| <= 2^(30 - h) and |sum| <= 2^30 however it is ordered. The steps are 2^-(30 - h) of
//! the largest gradient; f32's own are 2^-24 of each. Codecs that round send their exempt tensors this way.

use std::ops::Range;

use super::bucket::{Bucket, Key, Share, Tensor};
use super::entry::{Codec, Entry};
use super::integers;
use super::lanes::head_room;
use crate::comm::error::Error;
use crate::comm::world::World;
use crate::simd::simd;

/// In the catalogue.
pub const ENTRY: Entry = Entry {
    name: "exact",
    about: "32-bit integers, one scale a tensor: the same bits on any number of ranks",
    keys: &[],
    most_workers: MOST_WORKERS,
    integer: true,
    biased: false,
    make: |bucket, settings, _| Box::new(Exact::new(bucket, settings.workers, |_| true)),
    zeros: None,
    spec: |bucket, settings| Some(integers::describe(bucket, settings, None)),
};

/// Leaves 14 bits to each gradient.
const MOST_WORKERS: usize = 1 << 16;

/// Adding it to a number below 2^31 leaves the nearest integer (ties to even), as two's complement, in the low bits.
const RINT: f64 = 1.5 * (1u64 << 52) as f64;

simd! {
    /// The largest |g|, as bits: NaN > infinity > finite.
    pub(super) fn largest(gradients: &[f32]) -> u32 {
        gradients.iter().fold(0, |most, g| most.max(g.to_bits() & 0x7fff_ffff))
    }
}

simd! {
    /// `codes += rint(g scale)`; the scale is a power of two and every product below 2^31.
    fn add(codes: &mut [i32], gradients: &[f32], scale: f64) {
        for (code, g) in codes.iter_mut().zip(gradients) {
            *code = code.wrapping_add((f64::from(*g) * scale + RINT).to_bits() as i32);
        }
    }
}

simd! {
    fn decode(codes: &[i32], step: f64, into: &mut [f32]) {
        for (g, code) in into.iter_mut().zip(codes) {
            *g = (f64::from(*code) * step) as f32;
        }
    }
}

/// The scale 2^(30 - h - e), and its inverse; e is the exponent of the power of two just above the number with these bits.
fn scale(largest: u32, room: u32) -> (f64, f64) {
    let exponent = (f64::from(f32::from_bits(largest)).to_bits() >> 52) as i32 - 1023 + 1;
    let k = 30 - room as i32 - exponent;
    let power = |k: i32| f64::from_bits(((k + 1023) as u64) << 52);
    (power(k), power(-k))
}

/// Some tensors of a bucket as integers.
pub(super) struct Exact {
    /// Index of each tensor in the bucket, and its place in `codes`.
    places: Vec<(usize, Range<usize>)>,
    codes: Vec<i32>,
    room: u32,
}

impl Exact {
    /// For the tensors that `takes` picks.
    pub fn new(bucket: &Bucket, workers: usize, takes: impl Fn(&Tensor) -> bool) -> Self {
        let (mut places, mut end) = (Vec::new(), 0);
        for (index, tensor) in bucket.tensors.iter().enumerate().filter(|(_, t)| takes(t)) {
            let start = end;
            end += tensor.range.len();
            places.push((index, start..end));
        }
        Self { places, codes: vec![0; end], room: head_room(workers) }
    }
}

impl Codec for Exact {
    fn scales(&mut self, bucket: &Bucket, shares: &mut [Share<'_>], scales: &mut Vec<u32>) {
        scales.resize(bucket.tensors.len(), 0);
        for (index, _) in &self.places {
            let range = &bucket.tensors[*index].range;
            let most = shares.iter().map(|share| largest(&share.gradients[range.clone()])).max();
            scales[*index] = most.unwrap_or(0);
        }
    }

    fn encode(&mut self, bucket: &Bucket, scales: &[u32], shares: &mut [Share<'_>], _: Key) {
        self.codes.fill(0);
        for (index, place) in self.places.iter().filter(|(index, _)| scales[*index] > 0) {
            let (scale, _) = scale(scales[*index], self.room);
            for share in &*shares {
                add(&mut self.codes[place.clone()], &share.gradients[bucket.tensors[*index].range.clone()], scale);
            }
        }
    }

    fn send(&mut self, world: &World, _: &mut [Share<'_>]) -> Result<(), Error> {
        world.sum_i32(&mut self.codes)
    }

    fn decode(&mut self, bucket: &Bucket, scales: &[u32], into: &mut [f32]) {
        for (index, place) in &self.places {
            let into = &mut into[bucket.tensors[*index].range.clone()];
            if scales[*index] == 0 {
                into.fill(0.0);
            } else {
                decode(&self.codes[place.clone()], scale(scales[*index], self.room).1, into);
            }
        }
    }

    fn memory(&self) -> usize {
        size_of_val(self.codes.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_below_the_power_of_two() {
        for (x, exponent) in [(1.0f32, 1), (0.999, 0), (1.5, 1), (f32::MAX, 128), (f32::MIN_POSITIVE, -125)] {
            assert_eq!(scale(x.to_bits(), 0).0, 2f64.powi(30 - exponent), "{x}");
        }
        let tiniest = f32::from_bits(1);
        let (up, down) = scale(tiniest.to_bits(), 3);
        assert_eq!((up, f64::from(tiniest) * up, up * down), (2f64.powi(27 + 148), 2f64.powi(26), 1.0));
    }

    #[test]
    fn codes_are_the_nearest_integers() {
        let mut codes = [0; 6];
        add(&mut codes, &[0.5, 1.5, 2.5, -0.5, -1.75, 1073741824.0], 1.0);
        assert_eq!(codes, [0, 2, 2, 0, -2, 1 << 30]);
        add(&mut codes, &[1.0; 6], 2.0);
        assert_eq!(codes, [2, 4, 4, 2, 0, (1 << 30) + 2]);
    }

    #[test]
    fn nan_is_above_infinity_above_all() {
        let bits = |g: &[f32]| largest(g);
        assert_eq!(bits(&[]), 0);
        assert_eq!(bits(&[-3.0, 2.0, -0.0]), 3f32.to_bits());
        assert_eq!(bits(&[f32::MAX, f32::NEG_INFINITY]), f32::INFINITY.to_bits());
        assert!(bits(&[f32::INFINITY, -f32::NAN]) > f32::INFINITY.to_bits());
    }
}

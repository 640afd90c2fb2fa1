//! The codec `exact`: 32-bit fixed point. For each tensor, 2^e is above the largest |g| of all workers, and 2^h is at
//! least the number of workers. A gradient g is encoded as the integer q = rint(g 2^(30 - h - e)). So
//! |q| <= 2^(30 - h), and |sum| <= 2^30 in any order of the additions. The rounding step is 2^-(30 - h) of the largest
//! gradient, while f32's step is 2^-24 of each gradient. The integers overwrite the gradients of the last share. They
//! are summed in this buffer and converted back in it. So the codec allocates no buffer, and a cache has to hold one
//! bucket instead of two.
//!
//! Computing q in f32 gives the same result as the definition in f64, for every f32 below 2^e. Let k = 30 - h - e, so
//! -114 <= k <= 178.
//! - k >= 0: g 2^k is below 2^30. Multiplying by a power of two that does not make a number smaller is exact, even for
//!   denormal numbers. If 2^k is not an f32 (k > 127), the factors are 2^127 and 2^(k - 127), and both products are
//!   exact for the same reason.
//! - k < 0: digits are lost only if the product is below 2^-126, and both f32 and f64 round such a product to 0.
//! - So both round the same number once to the nearest integer, ties to even.
//!
//! Decoding: a sum in f64 times 2^-k is exact and is rounded once to f32. In f32, the sum is first rounded to 24
//! digits, and the product with 2^-k is exact unless it is denormal. It cannot be denormal if the step 2^-k is normal
//! (k <= 126). A product beyond f32's range is infinite in both cases, because it depends only on the 24 digits.
//! Tensors with smaller steps, whose largest gradient is below 2^-96, are decoded in f64.

use std::ops::Range;

use base::code_spec::{CodeFormat, CodeSpec, CodedTensor, IntegerCodes};
use base::simd;
use base::simd::nearest;

use super::packed::{Lanes, head_room};
use super::{Bucket, Codec, Entry, Key, Settings, Share, Tensor, packed};
use crate::error::Error;
use crate::world::World;

pub const ENTRY: Entry = Entry {
    name: "exact",
    about: "32-bit integers with one scale per tensor, the same result on any number of ranks",
    keys: &[],
    most_workers: MOST_WORKERS,
    integer: true,
    biased: false,
    make: |_, settings, _| Box::new(Exact { room: head_room(settings.workers) }),
    zeros: None,
    spec: |bucket, settings| Some(describe(bucket, settings, None)),
};

/// Largest number of workers. With this many workers, 14 bits remain for each gradient.
const MOST_WORKERS: usize = 1 << 16;

/// The largest k for which 2^k is an f32.
const MOST_EXPONENT: i32 = 127;

/// The largest k for which 2^-k is a normal f32.
const NORMAL_STEP: i32 = 126;

/// Gradients per block. The block's integers stay in the L1 cache while the workers are added.
const BLOCK: usize = 4096;

simd! {
    /// Returns the bits of the largest |g|. Compared as integers, the bits of NaN are the largest, followed by
    /// infinity.
    pub(super) fn largest(gradients: &[f32]) -> u32 {
        gradients.iter().fold(0, |most, g| most.max(g.to_bits() & 0x7fff_ffff))
    }
}

simd! {
    /// Replaces each gradient g by rint(g scale), an i32 stored as the bits of an f32. The scale is the product of both
    /// factors.
    fn round(gradients: &mut [f32], scale: [f32; 2]) {
        for g in gradients {
            *g = f32::from_bits(nearest(*g * scale[0] * scale[1]) as u32);
        }
    }
}

simd! {
    /// `codes += rint(g scale)`. The codes are i32 values stored as the bits of f32 values.
    fn add(codes: &mut [f32], gradients: &[f32], scale: [f32; 2]) {
        for (code, g) in codes.iter_mut().zip(gradients) {
            let q = nearest(*g * scale[0] * scale[1]);
            *code = f32::from_bits(code.to_bits().wrapping_add(q as u32));
        }
    }
}

simd! {
    /// Replaces each i32, stored as the bits of an f32, by the f32 value `integer * step`.
    fn widen(codes: &mut [f32], step: f32) {
        for code in codes {
            *code = code.to_bits() as i32 as f32 * step;
        }
    }
}

simd! {
    /// Works like [`widen`], for steps that are not f32 values.
    fn widen_tiny(codes: &mut [f32], step: f64) {
        for code in codes {
            *code = (f64::from(code.to_bits() as i32) * step) as f32;
        }
    }
}

/// Returns 2^k for |k| <= 1022.
fn power(k: i32) -> f64 {
    f64::from_bits(((k + 1023) as u64) << 52)
}

/// Returns k = 30 - h - e, where h is `room`, and 2^e is above the tensor's largest |g|, whose bits are `largest`.
fn exponent(largest: u32, room: u32) -> i32 {
    let e = (f64::from(f32::from_bits(largest)).to_bits() >> 52) as i32 - 1023 + 1;
    30 - room as i32 - e
}

/// Encodes a tensor of this rank's workers as integers and adds them up. The sums replace the last worker's gradients,
/// as the bits of f32 values. `largest` has the bits of the maximum of |g| over all workers on all ranks.
pub(super) fn encode<'a>(last: &mut [f32], others: impl Iterator<Item = &'a [f32]> + Clone, largest: u32, room: u32) {
    if largest == 0 {
        // The tensor may contain -0.0, whose bits are not the integer 0.
        return last.fill(0.0);
    }
    let k = exponent(largest, room);
    let scale = [k.min(MOST_EXPONENT), (k - MOST_EXPONENT).max(0)].map(|k| power(k) as f32);
    for (block, codes) in last.chunks_mut(BLOCK).enumerate() {
        round(codes, scale);
        others.clone().for_each(|other| add(codes, &other[block * BLOCK..][..codes.len()], scale));
    }
}

/// Replaces summed integers, stored as the bits of f32 values, by gradients.
pub(super) fn decode(codes: &mut [f32], largest: u32, room: u32) {
    // If all gradients are 0, all integers are 0, and their bits are already the f32 value 0.0.
    if largest > 0 {
        match exponent(largest, room) {
            k @ ..=NORMAL_STEP => widen(codes, power(-k) as f32),
            k => widen_tiny(codes, power(-k)),
        }
    }
}

struct Exact {
    room: u32,
}

impl Codec for Exact {
    fn scales(&mut self, bucket: &Bucket, shares: &mut [Share<'_>], scales: &mut Vec<u32>) {
        let most = |share: &Share<'_>, range| largest(&share.gradients[range]);
        scales.extend(bucket.tensors.iter().map(|tensor| {
            let own = shares.iter().map(|share| most(share, tensor.range.clone()));
            own.max().unwrap_or(0)
        }));
    }

    fn encode(&mut self, bucket: &Bucket, scales: &[u32], shares: &mut [Share<'_>], _: Key) {
        let Some((last, others)) = shares.split_last_mut() else { return };
        for (tensor, largest) in bucket.tensors.iter().zip(scales) {
            let others = others.iter().map(|share| &share.gradients[tensor.range.clone()]);
            encode(&mut last.gradients[tensor.range.clone()], others, *largest, self.room);
        }
    }

    fn send(&mut self, world: &World, shares: &mut [Share<'_>]) -> Result<(), Error> {
        shares.last_mut().map_or(Ok(()), |last| world.sum_i32_bits(last.gradients))
    }

    fn decode(&mut self, bucket: &Bucket, scales: &[u32], into: &mut [f32]) {
        for (tensor, largest) in bucket.tensors.iter().zip(scales) {
            decode(&mut into[tensor.range.clone()], *largest, self.room);
        }
    }
}

/// The exempt tensors of a bucket, encoded as in `exact`.
pub(super) struct Exempt {
    /// The index of each tensor in the bucket and its range in `codes`.
    places: Vec<(usize, Range<usize>)>,
    /// Integers, stored as the bits of f32 values.
    codes: Vec<f32>,
    room: u32,
}

impl Exempt {
    pub fn new(bucket: &Bucket, workers: usize) -> Self {
        let (mut places, mut end) = (Vec::new(), 0);
        for (index, tensor) in bucket.tensors.iter().enumerate().filter(|(_, t)| t.exempt) {
            let start = end;
            end += tensor.range.len();
            places.push((index, start..end));
        }
        Self { places, codes: vec![0.0; end], room: head_room(workers) }
    }

    /// Computes the scales of the exempt tensors and sets all other scales to 0.
    pub fn scales(&self, bucket: &Bucket, shares: &[Share<'_>], scales: &mut Vec<u32>) {
        scales.resize(bucket.tensors.len(), 0);
        for (index, _) in &self.places {
            let range = &bucket.tensors[*index].range;
            let most = shares.iter().map(|share| largest(&share.gradients[range.clone()])).max();
            scales[*index] = most.unwrap_or(0);
        }
    }

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

    /// Sums the integers over all ranks.
    pub fn send(&mut self, world: &World) -> Result<(), Error> {
        world.sum_i32_bits(&mut self.codes)
    }

    pub fn decode(&mut self, bucket: &Bucket, scales: &[u32], into: &mut [f32]) {
        for (index, place) in &self.places {
            let codes = &mut self.codes[place.clone()];
            decode(codes, scales[*index], self.room);
            into[bucket.tensors[*index].range.clone()].copy_from_slice(codes);
        }
    }

    pub fn memory(&self) -> usize {
        size_of_val(self.codes.as_slice())
    }
}

/// Describes an integer codec for a device. `lanes` is (largest code, number of standard deviations to clip at). With
/// `lanes`, tensors that are not exempt are sent as codes in lanes and exempt tensors as in `exact`. Without `lanes`,
/// all tensors are sent as in `exact`.
pub fn describe(bucket: &Bucket, settings: &Settings, lanes: Option<(u32, f32)>) -> CodeSpec {
    let &Settings { workers, error_feedback: feedback, .. } = settings;
    let part = |t: &Tensor| CodedTensor {
        range: t.range.clone(),
        elems: t.elems,
        parameter: t.parameter,
        in_lanes: lanes.is_some() && !t.exempt,
    };
    let (steps, clip) = lanes.unwrap_or((1, 0.0));
    let Lanes { bits, per_word } = Lanes::holding(2 * u64::from(steps) * workers as u64);
    let (parts, room) = (bucket.tensors.iter().map(part).collect(), head_room(workers));
    let format =
        CodeFormat::Integers(IntegerCodes { parts, workers, room, bits, per_word, block: packed::BLOCK, steps, clip });
    CodeSpec { len: bucket.len, feedback, format }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adding this to a number below 2^31 leaves the nearest integer (ties to even), as two's complement, in the low
    /// bits.
    const RINT: f64 = 1.5 * (1u64 << 52) as f64;

    /// Computes the code in f64, as in the definition.
    fn by_definition(g: f32, k: i32) -> i32 {
        (f64::from(g) * power(k) + RINT).to_bits() as i32
    }

    /// Mantissas to test: all zeros, all ones, and values that round up, down and to even.
    const DIGITS: [u32; 12] =
        [0, 1, 2, 3, 0x40_0000, 0x40_0001, 0x55_5555, 0x2a_aaab, 0x7f_fffe, 0x7f_ffff, 0x3f_ffff, 0x00_0800];

    #[test]
    fn exponent_scales_the_largest_value_below_2_to_the_30() {
        for (x, e) in [(1.0f32, 1), (0.999, 0), (1.5, 1), (f32::MAX, 128), (f32::MIN_POSITIVE, -125)] {
            assert_eq!(exponent(x.to_bits(), 0), 30 - e, "{x}");
        }
        let tiniest = f32::from_bits(1);
        let k = exponent(tiniest.to_bits(), 3);
        assert_eq!((k, f64::from(tiniest) * power(k)), (27 + 148, 2f64.powi(26)));
    }

    /// Tests every exponent that a tensor's largest gradient can have, with every smaller or equal exponent of a
    /// gradient: the integers must match the definition.
    #[test]
    fn integers_match_f64_for_all_exponents() {
        for room in [0, 1, 3, 16] {
            for most in 0..255u32 {
                // The largest number with this exponent field. Denormal numbers have the field 0.
                let largest = most << 23 | 0x7f_ffff;
                let k = exponent(largest, room);
                let own = (0..=most).flat_map(|field| DIGITS.map(|digits| f32::from_bits(field << 23 | digits)));
                let mut gradients: Vec<f32> = own.flat_map(|g| [g, -g]).collect();
                gradients.extend((0..23).flat_map(|bit| [f32::from_bits(1 << bit), -f32::from_bits((2 << bit) - 1)]));
                let wanted: Vec<i32> = gradients.iter().map(|g| by_definition(*g, k)).collect();
                let others = [gradients.clone()];
                let mut codes = gradients.clone();
                encode(&mut codes, others.iter().map(Vec::as_slice), largest, room);
                for ((code, q), g) in codes.iter().zip(&wanted).zip(&gradients) {
                    assert_eq!(code.to_bits() as i32, q.wrapping_mul(2), "{g:e} of a largest of {most}, room {room}");
                }
            }
        }
        // The largest gradient is denormal. Here k reaches 178.
        for bit in 0..23 {
            let largest = 1 << bit;
            let mut codes: Vec<f32> = (0..=bit).map(|b| f32::from_bits(1 << b)).collect();
            let wanted: Vec<i32> = codes.iter().map(|g| by_definition(*g, exponent(largest, 0))).collect();
            encode(&mut codes, std::iter::empty(), largest, 0);
            assert_eq!(codes.iter().map(|c| c.to_bits() as i32).collect::<Vec<_>>(), wanted, "2^{bit} of the least");
        }
    }

    /// Tests decoding with all steps: it must round once, from the exact product.
    #[test]
    fn gradients_match_f64_for_all_exponents() {
        let mut integers: Vec<i32> = (0..31).flat_map(|bit| [1 << bit, (1 << bit) - 1, (1 << bit) | 1]).collect();
        integers.extend([0x0155_5555, 0x2aaa_aaab, 0x0100_0001, 0x0180_0001, 0x0300_0002, 0x3fff_ffc0, 0x3fff_ffe0]);
        integers.retain(|q| *q <= 1 << 30);
        integers.extend(integers.clone().iter().map(|q| -q));
        for room in [0, 1, 3, 16] {
            let denormal = (0..23).map(|bit| 1 << bit);
            for largest in denormal.chain((1..255).map(|field| field << 23)) {
                let step = power(-exponent(largest, room));
                let mut codes: Vec<f32> = integers.iter().map(|q| f32::from_bits(*q as u32)).collect();
                decode(&mut codes, largest, room);
                for (got, q) in codes.iter().zip(&integers) {
                    let wanted = (f64::from(*q) * step) as f32;
                    assert_eq!(got.to_bits(), wanted.to_bits(), "{q} in steps of {step:e}");
                }
            }
        }
    }

    /// The codes of zeros are 0 for both signs.
    #[test]
    fn negative_zero_is_encoded_as_zero() {
        let mut codes = [0.0, -0.0, 0.0];
        encode(&mut codes, std::iter::empty(), 0, 2);
        assert_eq!(codes.map(f32::to_bits), [0; 3]);
        decode(&mut codes, 0, 2);
        assert_eq!(codes.map(f32::to_bits), [0; 3]);
    }

    /// Tests a tensor that is longer than one block.
    #[test]
    fn encode_adds_workers_in_tensors_longer_than_a_block() {
        let len = 2 * BLOCK + 77;
        let of = |salt: usize| (0..len).map(|i| ((i * 7919 + salt * 104_729) % 2_003) as f32 - 1_001.0).collect();
        let workers: [Vec<f32>; 3] = [0, 1, 2].map(of);
        let most = workers.iter().map(|w| largest(w)).max().unwrap();
        let k = exponent(most, 2);
        let mut codes = workers[2].clone();
        encode(&mut codes, workers[..2].iter().map(Vec::as_slice), most, 2);
        for (i, code) in codes.iter().enumerate() {
            let sum: i32 = workers.iter().map(|w| by_definition(w[i], k)).sum();
            assert_eq!(code.to_bits() as i32, sum, "element {i}");
        }
    }

    #[test]
    fn largest_orders_nan_above_infinity_above_finite_values() {
        let bits = |g: &[f32]| largest(g);
        assert_eq!(bits(&[]), 0);
        assert_eq!(bits(&[-3.0, 2.0, -0.0]), 3f32.to_bits());
        assert_eq!(bits(&[f32::MAX, f32::NEG_INFINITY]), f32::INFINITY.to_bits());
        assert!(bits(&[f32::INFINITY, -f32::NAN]) > f32::INFINITY.to_bits());
    }
}

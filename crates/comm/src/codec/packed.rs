//! The encoded gradients (codes) of the tensors that a codec rounds, packed into lanes of 64-bit words. Codes are never
//! negative, so no lane borrows from the next. Each rank adds the codes of its workers, then the words are summed over
//! all ranks. The codec defines the meaning of a code.
//!
//! A tensor is cut into blocks. In a block of w words, lane l of word j holds element l w + j, so that loops process
//! consecutive words and can be vectorised.

use std::ops::Range;

use base::simd;

use super::philox::Stream;
use super::{Bucket, Tensor};

/// Words per block. For every lane width, a block holds a whole number of the random generator's groups.
pub(super) const BLOCK: usize = 64;

/// Maximum lanes per word (two bits each).
const MOST_LANES: usize = 32;

simd! {
    fn pack(words: &mut [u64], codes: &[u32], bits: u32) {
        for (lane, codes) in codes.chunks(words.len()).enumerate() {
            let shift = lane as u32 * bits;
            for (word, code) in words.iter_mut().zip(codes) {
                *word = word.wrapping_add(u64::from(*code) << shift);
            }
        }
    }
}

simd! {
    /// `into = (lane - zero) / unit * scale`. The difference `lane - zero` is below 2^24 in absolute value, so it is
    /// exact in f32. Dividing before multiplying loses nothing even if the scale is the smallest f32.
    fn unpack(words: &[u64], bits: u32, zero: i32, unit: f32, scale: f32, into: &mut [f32]) {
        let mask = (1u64 << bits) - 1;
        for (lane, into) in into.chunks_mut(words.len()).enumerate() {
            let shift = lane as u32 * bits;
            for (g, word) in into.iter_mut().zip(words) {
                *g = (((word >> shift) & mask) as u32 as i32 - zero) as f32 / unit * scale;
            }
        }
    }
}

/// The summed codes of the tensors that a codec rounds.
pub(super) struct Packed {
    lanes: Lanes,
    /// The index of each tensor in the bucket and its range in `words`.
    places: Vec<(usize, Range<usize>)>,
    words: Vec<u64>,
    codes: Vec<u32>,
}

impl Packed {
    /// Allocates the words for all tensors that are not exempt.
    pub fn new(bucket: &Bucket, lanes: Lanes) -> Self {
        let (mut places, mut end) = (Vec::new(), 0);
        for (index, tensor) in bucket.tensors.iter().enumerate().filter(|(_, t)| !t.exempt) {
            let start = end;
            end += lanes.words(tensor.range.len());
            places.push((index, start..end));
        }
        Self { lanes, places, words: vec![0; end], codes: vec![0; BLOCK * MOST_LANES] }
    }

    /// Iterates over the packed tensors with their index in the bucket.
    pub fn tensors<'a>(&self, bucket: &'a Bucket) -> impl Iterator<Item = (usize, &'a Tensor)> {
        self.places.iter().map(|(index, _)| (*index, &bucket.tensors[*index]))
    }

    /// Returns the number of elements in a full block.
    pub fn block(&self) -> usize {
        BLOCK * self.lanes.per_word
    }

    /// Returns the words to sum over all ranks.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Encodes one worker's gradients of a tensor and adds the codes to the sums. `number` is the tensor's index among
    /// the packed tensors. `code` receives a block's gradients with one random word each, and replaces the words by
    /// codes.
    pub fn add(&mut self, number: usize, gradients: &[f32], stream: Stream, code: impl Fn(&[f32], &mut [u32])) {
        let (lanes, run) = (self.lanes, self.block());
        let words = &mut self.words[self.places[number].1.clone()];
        for (block, (words, gradients)) in words.chunks_mut(BLOCK).zip(gradients.chunks(run)).enumerate() {
            let codes = &mut self.codes[..gradients.len()];
            stream.fill(block * run, codes);
            code(gradients, codes);
            pack(words, codes, lanes.bits);
        }
    }

    /// Writes the summed gradients of a tensor: `(sum of codes - zero) / one * scale` for each element. `zero` is the
    /// sum of all workers' offsets. `one` is the code of a gradient that equals the scale.
    pub fn decode(&self, number: usize, (zero, one): (i32, f32), scale: f32, into: &mut [f32]) {
        let (lanes, run) = (self.lanes, self.block());
        let words = &self.words[self.places[number].1.clone()];
        for (words, into) in words.chunks(BLOCK).zip(into.chunks_mut(run)) {
            unpack(words, lanes.bits, zero, one, scale, into);
        }
    }

    pub fn memory(&self) -> usize {
        size_of_val(self.words.as_slice()) + size_of_val(self.codes.as_slice())
    }
}

// Lanes are small numbers packed into one 64-bit word. They are wide enough that a sum over all workers cannot overflow
// into the next lane, so adding two words adds all their lanes.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lanes {
    pub bits: u32,
    /// Lanes per word. The remaining bits stay zero.
    pub per_word: usize,
}

impl Lanes {
    /// Returns lanes that can hold sums from 0 to `most`.
    pub const fn holding(most: u64) -> Self {
        let bits = u64::BITS - most.leading_zeros();
        let bits = if bits == 0 { 1 } else { bits };
        Self { bits, per_word: (u64::BITS / bits) as usize }
    }

    /// Returns the words needed for `values` codes.
    pub fn words(self, values: usize) -> usize {
        values.div_ceil(self.per_word)
    }
}

/// Returns h = ceil(log2(workers)), the number of bits by which a sum over all workers can grow.
pub fn head_room(workers: usize) -> u32 {
    usize::BITS - workers.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;

    #[test]
    fn unpack_reverses_pack_for_every_length_and_width() {
        for most in [2, 4, 10, 254, 5_000] {
            let lanes = Lanes::holding(most);
            for len in [1, 5, 20, 21, 22, 1_343, 1_344, 1_345, 4_000] {
                let tensor = |start, exempt| Tensor {
                    name: String::new(),
                    parameter: 0,
                    range: start..start + len,
                    elems: len,
                    exempt,
                };
                let tensors = vec![tensor(0, true), tensor(len, false), tensor(2 * len, false)];
                let mut packed = Packed::new(&Bucket { len: 3 * len, tensors }, lanes);
                assert_eq!(packed.words.len(), 2 * len.div_ceil(lanes.per_word));
                let values: Vec<f32> = (0..len).map(|i| (i as u64 * 7919 % (most + 1)) as f32).collect();
                let stream = Stream::new(Key { seed: 1, step: 2 }, 0, 0);
                packed.add(1, &values, stream, |g, codes| codes.iter_mut().zip(g).for_each(|(c, g)| *c = *g as u32));
                let mut out = vec![7.0; len];
                packed.decode(1, (1, 4.0), 2.0, &mut out);
                assert!(out.iter().zip(&values).all(|(o, v)| *o == (v - 1.0) * 0.5), "{most}, {len}");
                packed.decode(0, (0, 1.0), 1.0, &mut out);
                assert!(out.iter().all(|o| *o == 0.0));
            }
        }
    }

    /// Ternary sums of V workers reach 2 V, int8 sums reach 254 V.
    #[test]
    fn lane_widths_match_the_formulas() {
        for v in 1..5_000u64 {
            let ternary = Lanes::holding(2 * v);
            assert_eq!(ternary.bits, (2 * v + 1).next_power_of_two().trailing_zeros(), "V = {v}");
            let room = head_room(v as usize);
            assert!(Lanes::holding(254 * v).bits <= 8 + room, "V = {v}");
        }
        let per_word = [1, 2, 3, 4, 7, 8, 15, 16].map(|v| Lanes::holding(2 * v).per_word);
        assert_eq!(per_word, [32, 21, 21, 16, 16, 12, 12, 10]);
        assert_eq!([1, 2, 4, 8, 256].map(|v| Lanes::holding(254 * v).per_word), [8, 7, 6, 5, 4]);
        assert_eq!((Lanes::holding(4).words(42), Lanes::holding(4).words(43)), (2, 3));
    }
}

//! A keyed permutation. Each position can be computed independently.

use std::ops::Range;

use crate::random::{self, ORDER_OP, key, philox_round};

const ROUNDS: u32 = 6;

/// Number of positions that are permuted in parallel.
const LANES: usize = 16;

/// A permutation of `0..n` in O(1) memory. It is a 6-round Feistel network over the smallest power of two that is at
/// least `n`. The round function is Philox, keyed by (seed, epoch). If a value is not below `n`, the network is applied
/// again (cycle walking), fewer than two times on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    key: [u32; 2],
    epoch: u32,
    /// Distinguishes the permutations of an epoch. 0 is the permutation of a whole split.
    domain: u32,
    n: u64,
    /// Number of bits of the high and low halves. They differ by one if the total is odd.
    high_bits: u32,
    low_bits: u32,
}

impl Permutation {
    /// Creates the permutation of `0..n` for an epoch of the run with this seed.
    pub fn new(seed: u64, epoch: u32, n: u64) -> Self {
        Self::for_domain(seed, epoch, 0, n)
    }

    /// Creates the permutation of an epoch for this domain. The permutations of different domains are independent.
    pub(crate) fn for_domain(seed: u64, epoch: u32, domain: u32, n: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { key: key(seed), epoch, domain, n, high_bits: bits.div_ceil(2), low_bits: bits / 2 }
    }

    /// Returns the permutation of another epoch, for the same seed, domain and `n`.
    pub(super) fn of_epoch(self, epoch: u32) -> Self {
        Self { epoch, ..self }
    }

    /// Returns the value at position `i`, which must be below `n`.
    pub fn get(&self, i: u64) -> u64 {
        debug_assert!(i < self.n, "position {i} of a permutation of {}", self.n);
        let mut value = [i];
        loop {
            self.encrypt(&mut value);
            if value[0] < self.n {
                return value[0];
            }
        }
    }

    /// Appends the values at these positions to `out`. Equivalent to [`Permutation::get`] but much faster, because the
    /// round function is computed for many positions in parallel.
    pub fn extend(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        let count = (positions.end - positions.start) as usize;
        let from = out.len();
        out.resize(from + count, 0);
        let out = &mut out[from..];
        // A lane takes its next position when its value is below `n`.
        let (mut next, mut done) = (0, 0);
        let (mut values, mut places) = ([0; LANES], [None; LANES]);
        while done < count {
            for (value, place) in values.iter_mut().zip(&mut places) {
                if place.is_none() && next < count {
                    (*value, *place) = (positions.start + next as u64, Some(next));
                    next += 1;
                }
            }
            self.encrypt(&mut values);
            for (value, place) in values.iter().zip(&mut places) {
                if let Some(at) = place.take_if(|_| *value < self.n) {
                    out[at] = *value;
                    done += 1;
                }
            }
        }
    }

    /// Applies the network to each value. Even rounds xor a function of the low half into the high half, and odd rounds
    /// the other way round. Each round is its own inverse, so all rounds together are a bijection for any widths of the
    /// halves.
    fn encrypt<const N: usize>(&self, values: &mut [u64; N]) {
        let mask = |bits: u32| (1u64 << bits) - 1;
        // A half has at most 32 bits.
        let mut high = values.map(|value| (value >> self.low_bits) as u32);
        let mut low = values.map(|value| (value & mask(self.low_bits)) as u32);
        for round in 0..ROUNDS {
            let even = round % 2 == 0;
            let (from, to, bits) =
                if even { (&low, &mut high, self.high_bits) } else { (&high, &mut low, self.low_bits) };
            let scrambled = self.scramble(from, round);
            (0..N).for_each(|lane| to[lane] ^= scrambled[lane] & mask(bits) as u32);
        }
        *values = std::array::from_fn(|lane| u64::from(high[lane]) << self.low_bits | u64::from(low[lane]));
    }

    /// Computes the round function of each half: the first word of a Philox block.
    fn scramble<const N: usize>(&self, halves: &[u32; N], round: u32) -> [u32; N] {
        let op = u32::from(ORDER_OP) << 16 | round;
        let (mut x0, mut x1) = (*halves, [self.domain; N]);
        let (mut x2, mut x3) = ([self.epoch; N], [op; N]);
        for round in 0..random::ROUNDS {
            for lane in 0..N {
                [x0[lane], x1[lane], x2[lane], x3[lane]] =
                    philox_round([x0[lane], x1[lane], x2[lane], x3[lane]], self.key, round);
            }
        }
        x0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_is_a_bijection_for_any_n() {
        for n in (1..70).chain([127, 128, 129, 1000, 4095, 4097, 50_000]) {
            for (seed, epoch) in [(0, 0), (1, 0), (1, 1), (u64::MAX, u32::MAX)] {
                let permutation = Permutation::new(seed, epoch, n);
                let mut seen = vec![false; n as usize];
                for i in 0..n {
                    let to = permutation.get(i) as usize;
                    assert!(!std::mem::replace(&mut seen[to], true), "n {n}: {to} twice");
                }
            }
        }
    }

    #[test]
    fn permuting_a_range_equals_permuting_each_position() {
        for n in [1, 2, 15, 16, 17, 100, 1000, 50_000, (1 << 33) + 7, u64::MAX >> 1, u64::MAX] {
            let permutation = Permutation::for_domain(5, 6, 7, n);
            for (start, count) in [(0, 40), (3, 16), (n / 2, 33), (n.saturating_sub(5), 5), (n - 1, 1), (n, 0)] {
                let positions = start.min(n)..n.min(start.saturating_add(count));
                let mut out = vec![9];
                permutation.extend(positions.clone(), &mut out);
                let expected: Vec<u64> = positions.map(|i| one_position(&permutation, i)).collect();
                assert_eq!(out[1..], expected, "{n}: {start}");
                assert!(expected.first().is_none_or(|&first| permutation.get(start) == first), "{n}: {start}");
            }
        }
    }

    /// Computes one position as docs/draws.md describes it, with the Philox function that is checked with known answers.
    fn one_position(p: &Permutation, mut value: u64) -> u64 {
        let word = |half: u64, round: u32| {
            let counter = [half as u32, p.domain, p.epoch, u32::from(ORDER_OP) << 16 | round];
            u64::from(random::philox4x32(counter, p.key)[0])
        };
        loop {
            let (mut high, mut low) = (value >> p.low_bits, value & ((1 << p.low_bits) - 1));
            for round in 0..ROUNDS {
                if round % 2 == 0 {
                    high ^= word(low, round) & ((1 << p.high_bits) - 1);
                } else {
                    low ^= word(high, round) & ((1 << p.low_bits) - 1);
                }
            }
            value = high << p.low_bits | low;
            if value < p.n {
                return value;
            }
        }
    }

    #[test]
    fn huge_permutations_stay_in_range() {
        for n in [(1 << 33) + 7, u64::MAX >> 1, u64::MAX] {
            let permutation = Permutation::new(3, 4, n);
            let values: Vec<_> = (0..100).map(|i| permutation.get(i)).collect();
            assert!(values.iter().all(|&v| v < n));
            assert!(values.iter().any(|&v| v > n / 2) && values.iter().any(|&v| v < n / 2));
        }
    }

    #[test]
    fn permutations_look_random() {
        let n = 10_000u64;
        let at = |seed, epoch| {
            let permutation = Permutation::new(seed, epoch, n);
            (0..n).map(|i| permutation.get(i)).collect::<Vec<_>>()
        };
        let one = at(1, 0);
        // Two unrelated permutations agree at one position on average, and so does a permutation with the identity.
        for other in [at(1, 1), at(2, 0), (0..n).collect()] {
            let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 10, "{same} places agree");
        }
        // Neighbours are n / 3 apart on average. The standard error is about 0.24 % of n.
        let distance: u64 = one.windows(2).map(|w| w[0].abs_diff(w[1])).sum();
        let mean = distance as f64 / (n - 1) as f64 / n as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.015, "{mean}");
        // The first tenth of the positions has 100 values of each tenth of the range, with a standard deviation of 10.
        let mut tenths = [0; 10];
        for &value in &one[..1000] {
            tenths[(value / 1000) as usize] += 1;
        }
        assert!(tenths.iter().all(|c| (60..140).contains(c)), "{tenths:?}");
    }
}

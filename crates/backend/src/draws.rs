//! Random draws of dropout and stochastic depth. They are functions of (seed, epoch, sample, op) and equal on every
//! backend.

use base::simd;
use loaders::random::{self, Draws};

/// The key of a pass's random draws. Each draw depends only on (seed, epoch, sample id, op index).
#[derive(Clone, Copy, Debug)]
pub struct DrawKey<'a> {
    pub seed: u64,
    pub epoch: u32,
    /// A sample id per row of the batch.
    pub ids: &'a [u64],
}

/// This bit is set in the op index of every layer. The op indices of the loader's transforms count from zero, so layers
/// and transforms draw different random numbers.
pub(crate) const FIRST_INDEX: u16 = 0x8000;

/// Fills `factors`, a sample's elements in C, H, W order, with dropout's factors: 0 if [`Draws::unit`] is below p,
/// otherwise 1 / (1 - p).
pub(crate) fn dropout_factors(p: f32, index: u16, key: &DrawKey<'_>, row: usize, factors: &mut [f32]) {
    fill(
        p,
        DrawCounter { id: key.ids[row], epoch: key.epoch, op: FIRST_INDEX | index },
        random::key(key.seed),
        factors,
    );
}

/// The part of the random generator's counter that is the same for all numbers of a draw.
#[derive(Clone, Copy)]
struct DrawCounter {
    id: u64,
    epoch: u32,
    op: u16,
}

/// Number of Philox blocks that are computed together. It is a power of two up to 2^16, so that the blocks' numbers
/// differ only in their low 16 bits.
const LANES: usize = 16;

simd! {
    fn fill(p: f32, counter: DrawCounter, key: [u32; 2], factors: &mut [f32]) {
        let scale = 1.0 / (1.0 - p);
        for (group, factors) in factors.chunks_mut(4 * LANES).enumerate() {
            let units = units(counter, key, (group * LANES) as u32);
            factors.iter_mut().zip(units.as_flattened()).for_each(|(f, unit)| *f = if *unit < p { 0.0 } else { scale });
        }
    }
}

/// Returns the random numbers of [`LANES`] consecutive Philox blocks, four numbers for each block. `first` is the
/// number of the first block, a multiple of [`LANES`].
#[inline(always)]
fn units(counter: DrawCounter, key: [u32; 2], first: u32) -> [[f32; 4]; LANES] {
    let mut x = random::counter(counter.id, counter.epoch, counter.op, first).map(|word| [word; LANES]);
    for (lane, word) in x[3].iter_mut().enumerate() {
        *word |= lane as u32;
    }
    for round in 0..random::ROUNDS {
        let [a, b, c, d] = x;
        for lane in 0..LANES {
            let words = random::philox_round([a[lane], b[lane], c[lane], d[lane]], key, round);
            (x[0][lane], x[1][lane], x[2][lane], x[3][lane]) = (words[0], words[1], words[2], words[3]);
        }
    }
    std::array::from_fn(|lane| [0, 1, 2, 3].map(|word| random::unit(x[word][lane])))
}

/// Returns the factor of stochastic depth for a row: 0 with probability p, otherwise 1 / (1 - p).
pub(crate) fn drop_path_factor(p: f32, index: u16, key: &DrawKey<'_>, row: usize) -> f32 {
    let mut draws = Draws::new(key.seed, key.ids[row], key.epoch, FIRST_INDEX | index);
    if draws.unit() < p { 0.0 } else { 1.0 / (1.0 - p) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropout_factors_match_single_draws() {
        for (p, elems) in [(0.5, 1), (0.3, 4 * LANES * 3 + 5), (0.9, (1 << 18) + 70)] {
            let key = DrawKey { seed: 0x1_2345_6789, epoch: 7, ids: &[3, 0xab_0000_0005] };
            let mut got = vec![7.0; elems];
            dropout_factors(p, 9, &key, 1, &mut got);
            let mut draws = Draws::new(key.seed, key.ids[1], key.epoch, FIRST_INDEX | 9);
            let want: Vec<f32> = (0..elems).map(|_| if draws.unit() < p { 0.0 } else { 1.0 / (1.0 - p) }).collect();
            assert!(got == want, "{p}, {elems} elements");
        }
    }

    #[test]
    fn large_samples_never_repeat_a_dropout_mask() {
        let (key, run) = (DrawKey { seed: 0x1_2345_6789, epoch: 7, ids: &[3, 0xab_0000_0005] }, 1 << 18);
        let mut got = vec![7.0; 3 * run + 9];
        dropout_factors(0.9, 9, &key, 1, &mut got);
        // FNV-1a hash of the factors
        let sum = |run: &[f32]| {
            run.iter().fold(0xcbf2_9ce4_8422_2325, |h, f| (h ^ u64::from(f.to_bits())).wrapping_mul(0x100_0000_01b3))
        };
        assert_eq!(sum(&got[..run]), 0xf537_90c3_32ad_dcdb_u64);
        let [first, second, third] = [0, 1, 2].map(|i| &got[i * run..][..run]);
        for (a, b) in [(first, second), (first, third), (second, third)] {
            // independent masks agree in 0.9^2 + 0.1^2 of their elements, give or take 0.0008
            let alike = a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / run as f64;
            assert!((alike - 0.82).abs() < 0.005, "{alike}");
        }
    }
}

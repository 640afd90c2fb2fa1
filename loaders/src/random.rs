//! The only source of randomness: Philox4x32-10, a counter-based generator. A draw is a pure function of its purpose
//! (seed, sample, epoch, op), so it does not depend on threads, ranks or the order of calls.
//!
//! Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC'11).

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
/// Number of rounds of the generator.
pub const ROUNDS: usize = 10;

/// Op index for the order of samples. Transforms must not use it.
pub const ORDER_OP: u16 = u16::MAX;

/// Op index for gradient codecs. The id of the draws consists of a worker and a block of elements.
pub const CODEC_OP: u16 = 0xff00;

/// Op index for mixing batches. The id of the draws consists of a step (high bits) and a worker.
pub const MIX_OP: u16 = 0xff01;

/// Computes a block of Philox4x32-10: four uniform 32-bit words.
#[inline]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    (0..ROUNDS).fold(counter, |x, round| philox_round(x, key, round))
}

/// Computes round `round` of a block, for loops that process multiple blocks in parallel.
#[inline(always)]
pub fn philox_round([x0, x1, x2, x3]: [u32; 4], key: [u32; 2], round: usize) -> [u32; 4] {
    let low = u64::from(MULTIPLIERS[0]) * u64::from(x0);
    let high = u64::from(MULTIPLIERS[1]) * u64::from(x2);
    let [k0, k1] = [0, 1].map(|i| key[i].wrapping_add(WEYL[i].wrapping_mul(round as u32)));
    [(high >> 32) as u32 ^ x1 ^ k0, high as u32, (low >> 32) as u32 ^ x3 ^ k1, low as u32]
}

/// Converts a word to a number in [0, 1): its top 24 bits times 2^-24, so every value is exact in f32.
#[inline(always)]
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// Converts a 64-bit seed to Philox's key, low word first.
#[inline]
pub fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// Returns the counter for block number `block` of an op's draws, for a sample (or worker) in an epoch (or step): (id
/// low, id high, epoch, op << 16 | block mod 2^16).
///
/// The bits of the block number above 16 are reversed and xored into the epoch. Below 2^18 draws this changes nothing.
/// Two epochs below 2^16, or two epochs that differ in their low 16 bits, never share a counter.
#[inline(always)]
pub fn counter(id: u64, epoch_or_step: u32, op: u16, block: u32) -> [u32; 4] {
    let epoch = epoch_or_step ^ (block >> 16).reverse_bits();
    [id as u32, (id >> 32) as u32, epoch, u32::from(op) << 16 | block & 0xffff]
}

/// The sequence of draws of an op, for a sample (or worker) in an epoch (or step).
///
/// The draws come from [`counter()`] with the seed as the key. Each block contains four draws, so an op has 2^34 draws
/// before the sequence repeats.
#[derive(Debug, Clone)]
pub struct Draws {
    key: [u32; 2],
    id: u64,
    epoch: u32,
    op: u16,
    /// Block number for the next four draws.
    next: u32,
    block: [u32; 4],
    used: usize,
}

impl Draws {
    /// Creates the draws for a `seed`, a sample or worker `id`, an epoch or step, and an op index.
    #[inline]
    pub fn new(seed: u64, id: u64, epoch_or_step: u32, op: u16) -> Self {
        Self { key: key(seed), id, epoch: epoch_or_step, op, next: 0, block: [0; 4], used: 4 }
    }

    /// Returns the epoch or step of these draws.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the draws for the same op and sample in another epoch, starting with the first draw.
    #[inline]
    pub fn of_epoch(&self, epoch: u32) -> Self {
        Self { key: self.key, id: self.id, epoch, op: self.op, next: 0, block: [0; 4], used: 4 }
    }

    /// Returns the next uniform 32-bit word.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox4x32(counter(self.id, self.epoch, self.op, self.next), self.key);
            self.next = self.next.wrapping_add(1);
            self.used = 0;
        }
        let word = self.block[self.used];
        self.used += 1;
        word
    }

    /// Returns the next [`unit()`].
    #[inline]
    pub fn unit(&mut self) -> f32 {
        unit(self.next_u32())
    }

    /// Returns true with this probability: if the next [`Draws::unit`] is below it in f32.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability as f32
    }

    /// Draws from [low, high): `low + unit * (high - low)` in f64, then rounded to f32. If this gives `high`, returns the
    /// largest f32 below it. If `low` and `high` are equal, returns them.
    #[inline]
    pub fn range(&mut self, low: f32, high: f32) -> f32 {
        let unit = f64::from(self.unit());
        let value = (f64::from(low) + unit * (f64::from(high) - f64::from(low))) as f32;
        if value == high && low < high { high.next_down() } else { value }
    }

    /// Draws from 0..n by multiply-high. Returns 0 if `n` is 0. The bias is below n / 2^32.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(n)) >> 32) as u32
    }

    /// Returns two independent numbers from N(0, 1). From two draws u and v it computes sqrt(-2 ln(1 - u)) times the
    /// cosine and the sine of 2 pi v (Box and Muller), in f64, and rounds both to f32. The absolute values are at most
    /// 5.77.
    #[inline]
    pub fn normals(&mut self) -> (f32, f32) {
        let radius = (-2.0 * (1.0 - f64::from(self.unit())).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * f64::from(self.unit())).sin_cos();
        ((radius * cosine) as f32, (radius * sine) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_known_answers_of_random123() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn draws_use_consecutive_counter_blocks() {
        let (seed, id, epoch, op) = (0x0123_4567_89ab_cdef, 0xfeed_0000_beef, 7, 3);
        let mut draws = Draws::new(seed, id, epoch, op);
        for block in 0..3 {
            let expected = philox4x32([0x0000_beef, 0xfeed, 7, 3 << 16 | block], [0x89ab_cdef, 0x0123_4567]);
            for word in expected {
                assert_eq!(draws.next_u32(), word);
            }
        }
    }

    /// Hashes this many words with FNV-1a.
    fn checksum(draws: &mut Draws, words: u32) -> u64 {
        (0..words).fold(0xcbf2_9ce4_8422_2325, |h, _| (h ^ u64::from(draws.next_u32())).wrapping_mul(0x100_0000_01b3))
    }

    #[test]
    fn first_draws_are_fixed_and_later_ones_do_not_repeat_them() {
        let mut draws = Draws::new(1, 2, 3, 4);
        let sums = [0; 3].map(|_| checksum(&mut draws, 1 << 18));
        assert_eq!(sums[0], 0xc52c_bcba_a85d_80af);
        assert!(sums[1] != sums[0] && sums[2] != sums[0] && sums[2] != sums[1]);
        assert_eq!((draws.epoch(), checksum(&mut draws.of_epoch(3), 1 << 18)), (3, sums[0]));
    }

    #[test]
    fn block_counter_does_not_overflow_into_op_or_epoch() {
        assert_eq!(counter(2, 3, 4, 0xffff), [2, 0, 3, 4 << 16 | 0xffff]);
        assert_eq!(counter(2, 3, 4, 0x1_0000), [2, 0, 0x8000_0003, 4 << 16]);
        assert_eq!(counter(2, 3, 4, u32::MAX), [2, 0, 0xffff_0003, 4 << 16 | 0xffff]);
    }

    /// The largest unit, 1 - 2^-24, is drawn here for one of 2^24 words. Between 1 and 2, the formula then rounds to 2.
    #[test]
    fn ranges_do_not_contain_their_upper_bound() {
        let draws = |word: u32| Draws { block: [word; 4], used: 0, ..Draws::new(0, 0, 0, 0) };
        let largest = draws(u32::MAX);
        assert_eq!(largest.clone().unit(), 1.0 - 2f32.powi(-24));
        for (low, high) in [(1.0, 2.0), (-3.0, 5.0), (0.2, 1.8), (1.0, 1.0f32.next_up()), (-2.0, -1.0)] {
            let drawn = largest.clone().range(low, high);
            assert!((low..high).contains(&drawn), "{drawn} of [{low}, {high})");
        }
        assert_eq!(largest.clone().range(1.0, 2.0), 2f32.next_down());
        assert_eq!(largest.clone().range(0.5, 0.5), 0.5);
        // the formula determines all other draws
        for word in (0..u32::MAX).step_by(9_999_991) {
            let formula = (-3.0 + f64::from(unit(word)) * 8.0) as f32;
            assert_eq!(draws(word).range(-3.0, 5.0), formula, "word {word}");
        }
    }

    #[test]
    fn normals_have_the_moments_of_the_normal_distribution() {
        let n = 50_000;
        let (mut first, mut second, mut fourth, mut product) = (0.0, 0.0, 0.0, 0.0);
        for id in 0..n {
            let (a, b) = Draws::new(42, id, 0, 0).normals();
            let (a, b) = (f64::from(a), f64::from(b));
            first += a + b;
            second += a * a + b * b;
            fourth += a.powi(4) + b.powi(4);
            product += a * b;
        }
        // The standard errors are 0.003, 0.0045, 0.03 and 0.0045.
        let values = 2.0 * n as f64;
        assert!((first / values).abs() < 0.015);
        assert!((second / values - 1.0).abs() < 0.02);
        assert!((fourth / values - 3.0).abs() < 0.15);
        assert!((product / n as f64).abs() < 0.02);
    }

    #[test]
    fn unit_and_below_stay_in_range_and_are_centred() {
        let n = 20_000;
        let (mut sum, mut counts) = (0.0, [0u32; 9]);
        for id in 0..n {
            let mut draws = Draws::new(42, id, 0, 0);
            let unit = draws.unit();
            assert!((0.0..1.0).contains(&unit));
            sum += f64::from(unit);
            counts[draws.below(9) as usize] += 1;
        }
        // The standard error of the mean is 0.289 / sqrt(20000) = 0.002.
        assert!((sum / n as f64 - 0.5).abs() < 0.01);
        // Each count is expected to be 2222, with a standard deviation of 44.
        assert!(counts.iter().all(|&c| (2000..2450).contains(&c)));
    }
}

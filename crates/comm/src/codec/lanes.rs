//! Small numbers side by side in 64-bit words, in lanes so wide that sums over all workers never run over into the next one:
//! adding words adds all their lanes.

/// How a word is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lanes {
    /// Of one lane.
    pub bits: u32,
    /// In one word; the bits left over stay zero.
    pub per_word: usize,
}

impl Lanes {
    /// For sums of up to `most`.
    pub const fn holding(most: u64) -> Self {
        let bits = u64::BITS - most.leading_zeros();
        let bits = if bits == 0 { 1 } else { bits };
        Self { bits, per_word: (u64::BITS / bits) as usize }
    }

    /// Words for so many values.
    pub fn words(self, values: usize) -> usize {
        values.div_ceil(self.per_word)
    }
}

/// h: the bits by which a sum over so many workers grows.
pub fn head_room(workers: usize) -> u32 {
    usize::BITS - workers.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ternary sums of V workers run to 2 V, int8's to 254 V.
    #[test]
    fn widths_are_those_of_the_formulas() {
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

//! Which of many hashes of 64 bits are near a given one: every hash at a distance of at most 7 bits is found, without looking at all.
//!
//! A hash is four words of 16 bits. Of two hashes that differ in at most 7 bits, one word differs in at most one: a table for each word
//! and 17 places to look at in it find all.

const WORDS: usize = 4;
const BITS: usize = 16;
/// The most bits that near hashes differ in.
const NEAR: u32 = 7;

/// Hashes, found by their words.
pub(super) struct Lookup {
    hashes: Vec<u64>,
    tables: [Table; WORDS],
}

/// For each value of a word the hashes that have it.
struct Table {
    /// Where the list of each value starts, then the end of the last.
    starts: Vec<u32>,
    /// Numbers of hashes.
    numbers: Vec<u32>,
}

fn word(hash: u64, at: usize) -> usize {
    (hash >> (BITS * at)) as usize & ((1 << BITS) - 1)
}

impl Table {
    fn of(hashes: &[u64], at: usize) -> Self {
        let mut starts = vec![0u32; (1 << BITS) + 1];
        hashes.iter().for_each(|&hash| starts[word(hash, at) + 1] += 1);
        (0..1 << BITS).for_each(|value| starts[value + 1] += starts[value]);
        let (mut next, mut numbers) = (starts.clone(), vec![0; hashes.len()]);
        for (number, &hash) in (0u32..).zip(hashes) {
            let place = &mut next[word(hash, at)];
            numbers[*place as usize] = number;
            *place += 1;
        }
        Table { starts, numbers }
    }

    fn with(&self, value: usize) -> &[u32] {
        &self.numbers[self.starts[value] as usize..self.starts[value + 1] as usize]
    }
}

impl Lookup {
    /// The lookup of these hashes, at most 2^32.
    pub(super) fn of(hashes: impl Iterator<Item = u64>) -> Self {
        let hashes: Vec<u64> = hashes.collect();
        let tables = std::array::from_fn(|at| Table::of(&hashes, at));
        Lookup { hashes, tables }
    }

    /// Calls `see` with the number of each hash near `hash`; with some of them more than once.
    pub(super) fn near(&self, hash: u64, mut see: impl FnMut(usize)) {
        for (at, table) in self.tables.iter().enumerate() {
            let value = word(hash, at);
            let places = std::iter::once(value).chain((0..BITS).map(|bit| value ^ 1 << bit));
            let numbers = places.flat_map(|place| table.with(place)).map(|&number| number as usize);
            numbers.filter(|&number| (self.hashes[number] ^ hash).count_ones() <= NEAR).for_each(&mut see);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_near_hashes_are_found_and_no_other() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 33
        };
        let centre = random();
        let flipped = |random: &mut dyn FnMut() -> u64| {
            let flips = random() % 20;
            (0..flips).fold(centre, |hash, _| hash ^ 1 << (random() % 64))
        };
        let hashes: Vec<u64> = (0..3000).map(|_| flipped(&mut random)).collect();
        let lookup = Lookup::of(hashes.iter().copied());
        let mut found = Vec::new();
        lookup.near(centre, |number| found.push(number));
        found.sort_unstable();
        found.dedup();
        let expected: Vec<usize> = (0..3000).filter(|&i| (hashes[i] ^ centre).count_ones() <= 7).collect();
        assert!(expected.len() > 300 && expected.len() < 2700);
        assert_eq!(found, expected);
    }
}

//! Assigns places in one buffer to values, such that values in use at the same time do not overlap.

use std::ops::Range;

/// Places begin at multiples of 64 elements. These 256 bytes satisfy the alignment of vector instructions and GPU
/// libraries.
const UNIT: usize = 64;

/// The size of a value, and the first and last moment of its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub elems: usize,
    pub from: usize,
    pub to: usize,
}

impl Lifetime {
    fn meets(&self, other: &Lifetime) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Returns each value's place and the total number of elements. Tries different orders of values and takes the best
/// result. Each value goes into the smallest gap that is free during its whole lifetime.
pub(super) fn pack(lives: &[Lifetime]) -> (Vec<Range<usize>>, usize) {
    let least = most_at_once(lives);
    let mut best: Option<(Vec<Range<usize>>, usize)> = None;
    let large_first = |life: &Lifetime| [usize::MAX - life.elems, life.from];
    let long_first = |life: &Lifetime| [usize::MAX - (life.to - life.from), life.from];
    let early_first = |life: &Lifetime| [life.from, usize::MAX - life.to];
    for order in [large_first, long_first, early_first] {
        let mut all: Vec<usize> = (0..lives.len()).collect();
        all.sort_by_key(|i| order(&lives[*i]));
        let found = place(lives, &all);
        if best.as_ref().is_none_or(|best| found.1 < best.1) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|best| best.1 == least) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Returns the elements that a value occupies, including alignment.
fn room(life: &Lifetime) -> usize {
    life.elems.next_multiple_of(UNIT)
}

/// Returns the largest number of elements that are in use at the same time.
pub(super) fn most_at_once(lives: &[Lifetime]) -> usize {
    let at = |moment: usize| lives.iter().filter(|life| life.from <= moment && moment <= life.to).map(room).sum();
    // the maximum is reached at a moment at which some value begins
    let mut begins: Vec<usize> = lives.iter().map(|life| life.from).collect();
    begins.sort_unstable();
    begins.dedup();
    begins.into_iter().map(at).max().unwrap_or(0)
}

fn place(lives: &[Lifetime], order: &[usize]) -> (Vec<Range<usize>>, usize) {
    let mut places = vec![0..0; lives.len()];
    // sorted by their places
    let mut placed: Vec<usize> = Vec::new();
    let mut elems = 0;
    for &i in order {
        let life = &lives[i];
        let start = gap(room(life), placed.iter().filter(|j| lives[**j].meets(life)).map(|j| &places[*j]));
        places[i] = start..start + life.elems;
        elems = elems.max(start + room(life));
        let at = placed.partition_point(|j| places[*j].start <= start);
        placed.insert(at, i);
    }
    (places, elems)
}

/// Returns the start of the smallest gap of at least `elems` elements between the ranges. If there is no such gap,
/// returns the first place after them. `taken` must be sorted by start.
fn gap<'a>(elems: usize, taken: impl Iterator<Item = &'a Range<usize>>) -> usize {
    let (mut best, mut end) = (None, 0);
    for range in taken {
        let free = range.start.saturating_sub(end);
        if free >= elems && best.is_none_or(|(least, _)| free < least) {
            best = Some((free, end));
        }
        end = end.max(range.end.next_multiple_of(UNIT));
    }
    best.map_or(end, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(elems: usize, from: usize, to: usize) -> Lifetime {
        Lifetime { elems, from, to }
    }

    /// Packs the values, checks that values in use at the same time do not overlap, and returns the total number of
    /// elements.
    fn checked(lives: &[Lifetime]) -> usize {
        let (places, elems) = pack(lives);
        for (i, (a, place)) in lives.iter().zip(&places).enumerate() {
            assert_eq!((place.len(), place.start % UNIT), (a.elems, 0));
            assert!(place.end <= elems);
            for (b, other) in lives.iter().zip(&places).take(i) {
                assert!(!a.meets(b) || place.end <= other.start || other.end <= place.start, "{a:?} {b:?}");
            }
        }
        assert!(elems >= most_at_once(lives));
        elems
    }

    #[test]
    fn values_at_different_times_share_places() {
        assert_eq!(checked(&[]), 0);
        assert_eq!(checked(&[life(64, 0, 1), life(64, 2, 3), life(128, 4, 4)]), 128);
        assert_eq!(checked(&[life(64, 0, 2), life(64, 2, 3)]), 128, "both are in use at moment 2");
        // two small values in the place of a large one
        assert_eq!(checked(&[life(640, 0, 3), life(320, 4, 9), life(320, 5, 8), life(64, 0, 9)]), 704);
        assert_eq!(checked(&[life(1, 0, 0), life(65, 0, 0)]), 192, "places begin at multiples of the unit");
    }

    #[test]
    fn a_stack_of_values_takes_what_is_alive_at_its_top() {
        // Like activations and their gradients, values begin one after another and end in the opposite order.
        let n = 40;
        let kept = (0..n).map(|i| life(1000 + 64 * i * i % 7777, i, 2 * n - i));
        let passing = (0..n).map(|i| life(1000 + 64 * (n - i) * (n - i) % 7777, n + i, n + i + 1));
        let lives: Vec<Lifetime> = kept.chain(passing).collect();
        let (elems, least) = (checked(&lives), most_at_once(&lives));
        assert!(elems * 100 <= least * 110, "{elems} of at least {least}");
    }
}

//! Which classes are taken for which.

use std::collections::BTreeMap;

use super::outcome::Outcome;

/// A dense matrix of more classes than this would fill a terminal, a page and a disk.
const MOST_DENSE: usize = 4096;

/// How many images of each class were taken for which class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// Images by class and by what they were taken for.
    cells: BTreeMap<(u32, u32), u64>,
}

/// Images of one class that were taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// What they are.
    pub label: u32,
    /// What they were taken for.
    pub taken_for: u32,
    /// How many.
    pub images: u64,
}

impl Confusion {
    /// Of images of so many classes.
    pub fn of(classes: usize, outcomes: &[Outcome]) -> Self {
        let mut cells = BTreeMap::new();
        for one in outcomes {
            *cells.entry((one.label, one.guess().class)).or_insert(0) += 1;
        }
        Self { classes, cells }
    }

    /// All cells that are not 0, by class.
    pub fn cells(&self) -> impl Iterator<Item = Pair> {
        self.cells.iter().map(|(&(label, taken_for), &images)| Pair { label, taken_for, images })
    }

    /// Classes that were taken for others, the most frequent first.
    pub fn pairs(&self) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = self.cells().filter(|pair| pair.label != pair.taken_for).collect();
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.images), pair.label, pair.taken_for));
        pairs
    }

    /// Rows of classes, columns of what they were taken for; none for more classes than a matrix is good for.
    pub fn rows(&self) -> Option<Vec<Vec<u64>>> {
        (self.classes <= MOST_DENSE).then(|| {
            let mut rows = vec![vec![0; self.classes]; self.classes];
            for Pair { label, taken_for, images } in self.cells() {
                if let Some(cell) = rows.get_mut(label as usize).and_then(|row| row.get_mut(taken_for as usize)) {
                    *cell = images;
                }
            }
            rows
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Softmax;
    use super::*;

    #[test]
    fn cells_by_hand() {
        let outcome = |label: u32, guess: usize| {
            let mut scores = [0.0; 3];
            scores[guess] = 1.0;
            Outcome::new(0, label, &scores, Softmax::of(&scores))
        };
        let all = [outcome(0, 0), outcome(0, 2), outcome(2, 1), outcome(2, 1), outcome(1, 1)];
        let confusion = Confusion::of(3, &all);
        assert_eq!(confusion.rows().unwrap(), [[1, 0, 1], [0, 1, 0], [0, 2, 0]]);
        let pairs = confusion.pairs();
        assert_eq!(pairs[0], Pair { label: 2, taken_for: 1, images: 2 });
        assert_eq!((pairs.len(), pairs[1].taken_for), (2, 2));
        assert!(Confusion::of(5000, &all).rows().is_none());
    }
}

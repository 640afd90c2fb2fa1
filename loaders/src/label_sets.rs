//! Label kinds, and sets of classes for samples with any number of classes.

/// The kind of label that each image of a data set has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LabelKind {
    /// Exactly one class.
    #[default]
    OneClass,
    /// Any number of classes.
    Classes,
    /// A number for each target (regression).
    Numbers,
}

impl LabelKind {
    /// Returns the kind of labels. `has_targets` is true for numbers, `several` if an image may have more than one class.
    pub fn new(has_targets: bool, several: bool) -> Self {
        match (has_targets, several) {
            (true, _) => Self::Numbers,
            (false, true) => Self::Classes,
            (false, false) => Self::OneClass,
        }
    }
}

/// The classes of a sequence of samples. The classes of each sample are in ascending order without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSets {
    classes: Vec<u32>,
    /// End of each sample's classes in `classes`.
    ends: Vec<usize>,
}

impl LabelSets {
    /// Adds a sample with these classes, in any order.
    pub fn push(&mut self, classes: impl IntoIterator<Item = u32>) {
        let start = self.classes.len();
        self.classes.extend(classes);
        self.classes[start..].sort_unstable();
        let mut end = start;
        for at in start..self.classes.len() {
            if at == start || self.classes[at] != self.classes[end - 1] {
                self.classes[end] = self.classes[at];
                end += 1;
            }
        }
        self.classes.truncate(end);
        self.ends.push(end);
    }

    /// Returns the classes of sample `number`.
    ///
    /// # Panics
    ///
    /// Panics if there is no sample with this number.
    pub fn get(&self, number: usize) -> &[u32] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.classes[start..self.ends[number]]
    }

    /// Iterates over the classes of each sample.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn clear(&mut self) {
        self.classes.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_sets_are_sorted_without_duplicates() {
        let mut sets = LabelSets::default();
        let rows: [&[u32]; 5] = [&[], &[3, 1, 3, 2, 1], &[0], &[], &[7, 7]];
        rows.iter().for_each(|row| sets.push(row.iter().copied()));
        assert_eq!(sets.iter().collect::<Vec<_>>(), [&[][..], &[1, 2, 3], &[0], &[], &[7]]);
        assert_eq!((sets.len(), sets.is_empty()), (5, false));
        sets.clear();
        assert!(sets.is_empty());
        sets.push([4]);
        assert_eq!(sets.get(0), [4]);
    }
}

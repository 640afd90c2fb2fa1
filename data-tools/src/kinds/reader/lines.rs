//! The lines of a table or label file. Equal labels, splits and messages are stored only once, so a line needs little
//! more memory than its text.

use super::input::{Budget, Content};
use super::labels::Label;
use crate::error::Error;
use loaders::Limits;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The limit for a table field or a list of labels in bytes.
pub(crate) const MAX_FIELD: usize = 1 << 20;

/// Memory for a line in addition to its path, which is stored both in [`Lines`] and in the listing of the files.
const LINE: u64 = 96;
/// Memory for a new value in addition to its text, which is copied about eight times.
const VALUE: u64 = 600;

/// The content of a line of a table or label file.
#[derive(Debug)]
pub(crate) struct LineContent<'a> {
    /// Line number in the file, from 1.
    pub number: u64,
    /// The image, relative to the image folder.
    pub path: &'a str,
    /// The labels. There may be none or several if the list allows that.
    pub labels: Vec<Label>,
    /// A number for each target. Empty if the list has no targets.
    pub numbers: &'a [f32],
    /// The word in the split column, or an empty text.
    pub split: &'a str,
    /// The reason why its labels are invalid, if they are.
    pub fault: Option<String>,
}

/// A line. Its labels, split and fault are indices into the lists of [`Lines`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub number: u64,
    start: u64,
    length: u32,
    /// Start and number of the line's target values in `Lines::numbers`.
    numbers: (u64, u32),
    pub labels: u32,
    pub split: u32,
    fault: u32,
}

/// Distinct values, numbered in order of first occurrence.
#[derive(Debug)]
struct DistinctValues<T> {
    all: Vec<T>,
    numbers: BTreeMap<T, u32>,
}

impl<T: Ord + Clone> DistinctValues<T> {
    fn new() -> Self {
        DistinctValues { all: Vec::new(), numbers: BTreeMap::new() }
    }

    /// Returns the number of a value, and true if the value is new.
    fn number(&mut self, value: &T) -> (u32, bool) {
        if let Some(number) = self.numbers.get(value) {
            return (*number, false);
        }
        let number = self.all.len() as u32;
        self.all.push(value.clone());
        self.numbers.insert(value.clone(), number);
        (number, true)
    }
}

/// The lines of a table or label file, and the memory that they use. Methods that need more of it return an error if the
/// lines would use more memory than the limits allow.
#[derive(Debug)]
pub(crate) struct Lines {
    file: PathBuf,
    budget: Budget,
    paths: String,
    lines: Vec<Line>,
    numbers: Vec<f32>,
    labels: DistinctValues<Vec<Label>>,
    splits: DistinctValues<String>,
    /// An empty text means no fault.
    faults: DistinctValues<String>,
}

impl Lines {
    /// Creates an empty list for `file`, which has `bytes` bytes.
    pub(crate) fn new(file: &Path, bytes: usize, limits: Limits) -> Self {
        Lines {
            file: file.to_path_buf(),
            budget: Budget::of(Content::Lines, limits, bytes as u64),
            paths: String::new(),
            lines: Vec::new(),
            numbers: Vec::new(),
            labels: DistinctValues::new(),
            splits: DistinctValues::new(),
            faults: DistinctValues::new(),
        }
    }

    pub(crate) fn push(&mut self, content: LineContent<'_>) -> Result<(), Error> {
        let LineContent { number, path, labels, numbers, split, fault } = content;
        // Paths and target values are stored twice: in these lines and in the listing of the files.
        self.take(LINE + 2 * path.len() as u64 + 4 * labels.len() as u64 + 8 * numbers.len() as u64)?;
        let text: usize = labels.iter().map(Label::bytes).sum();
        let (labels, is_new) = self.labels.number(&labels);
        if is_new {
            self.take(VALUE + 8 * text as u64)?;
        }
        let split = self.split(split)?;
        let fault = self.fault(&fault.unwrap_or_default())?;
        let (start, length) = (self.paths.len() as u64, path.len() as u32);
        let own = (self.numbers.len() as u64, numbers.len() as u32);
        let line = Line { number, start, length, numbers: own, labels, split, fault };
        self.paths.push_str(path);
        self.numbers.extend_from_slice(numbers);
        self.lines.push(line);
        Ok(())
    }

    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Error> {
        self.budget.take(&self.file, bytes)
    }

    fn split(&mut self, word: &str) -> Result<u32, Error> {
        if let Some(number) = self.splits.numbers.get(word) {
            return Ok(*number);
        }
        self.take(VALUE + 8 * word.len() as u64)?;
        Ok(self.splits.number(&word.to_string()).0)
    }

    fn fault(&mut self, what: &str) -> Result<u32, Error> {
        if let Some(number) = self.faults.numbers.get(what) {
            return Ok(*number);
        }
        self.take(VALUE + 4 * what.len() as u64)?;
        Ok(self.faults.number(&what.to_string()).0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(crate) fn all(&self) -> &[Line] {
        &self.lines
    }

    pub(crate) fn path(&self, line: &Line) -> &str {
        let start = line.start as usize;
        self.paths.get(start..start + line.length as usize).unwrap_or("")
    }

    /// Returns the image of a line: its path without leading `./`.
    pub(crate) fn image(&self, line: &Line) -> &str {
        self.path(line).trim_start_matches("./")
    }

    pub(crate) fn labels(&self, line: &Line) -> &[Label] {
        &self.labels.all[line.labels as usize]
    }

    pub(crate) fn numbers(&self, line: &Line) -> &[f32] {
        let (start, count) = line.numbers;
        &self.numbers[start as usize..][..count as usize]
    }

    pub(crate) fn split_word(&self, line: &Line) -> &str {
        &self.splits.all[line.split as usize]
    }

    pub(crate) fn line_fault(&self, line: &Line) -> Option<&str> {
        Some(self.faults.all[line.fault as usize].as_str()).filter(|what| !what.is_empty())
    }

    /// Iterates over all labels. A label occurs once for each set of labels that contains it.
    pub(crate) fn labels_mut(&mut self) -> impl Iterator<Item = &mut Label> {
        self.labels.all.iter_mut().flatten()
    }

    pub(crate) fn split_words(&self) -> &[String] {
        &self.splits.all
    }

    /// Iterates over the distinct pairs of split and labels.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &[Label])> {
        let pairs: std::collections::BTreeSet<(u32, u32)> =
            self.lines.iter().map(|line| (line.split, line.labels)).collect();
        pairs.into_iter().map(|(split, labels)| {
            (self.splits.all[split as usize].as_str(), self.labels.all[labels as usize].as_slice())
        })
    }

    /// Replaces each path for which `replaced` returns a new path.
    pub(crate) fn replace_paths(&mut self, replaced: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
        for at in 0..self.lines.len() {
            let line = self.lines[at];
            let Some(path) = replaced(self.path(&line)) else { continue };
            self.take(path.len() as u64)?;
            self.lines[at] = Line { start: self.paths.len() as u64, length: path.len() as u32, ..line };
            self.paths.push_str(&path);
        }
        Ok(())
    }

    pub(crate) fn trim_paths(&mut self) {
        for at in 0..self.lines.len() {
            let trimmed = self.image(&self.lines[at]).len() as u32;
            let line = &mut self.lines[at];
            line.start += u64::from(line.length - trimmed);
            line.length = trimmed;
        }
    }

    /// Sets the split of each line without one to the split that `of` finds in its path.
    pub(crate) fn split_by_path(&mut self, of: impl Fn(&str) -> Option<&str>) -> Result<(), Error> {
        for at in 0..self.lines.len() {
            let line = self.lines[at];
            if let (true, Some(word)) = (self.split_word(&line).is_empty(), of(self.image(&line)).map(str::to_string)) {
                self.lines[at].split = self.split(&word)?;
            }
        }
        Ok(())
    }

    /// Replaces each split word by the result of `of`, and removes the lines for which it returns `None`.
    pub(crate) fn rename_splits(&mut self, of: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
        let words = self.splits.all.clone();
        let numbers = words.iter().map(|word| of(word).map(|split| self.split(&split)).transpose());
        let numbers = numbers.collect::<Result<Vec<Option<u32>>, Error>>()?;
        self.lines.retain_mut(|line| match numbers[line.split as usize] {
            Some(split) => {
                line.split = split;
                true
            }
            None => false,
        });
        Ok(())
    }

    /// Returns the positions of all lines, sorted by image. Lines with the same image stay in file order.
    pub(crate) fn by_image(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.lines.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| {
            let image = |at: u32| self.image(&self.lines[at as usize]);
            image(a).cmp(image(b)).then(a.cmp(&b))
        });
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(lines: &mut Lines, number: u64, path: &str, label: &str, split: &str) -> Result<(), Error> {
        let labels = vec![Label::from_field(label)];
        lines.push(LineContent { number, path, labels, numbers: &[], split, fault: None })
    }

    #[test]
    fn values_are_stored_once_and_memory_is_limited() {
        let mut lines = Lines::new(Path::new("a.csv"), 100, Limits::with_memory(4000));
        push(&mut lines, 1, "b.jpg", "cat", "").unwrap();
        push(&mut lines, 2, "./a.jpg", "cat", "val").unwrap();
        push(&mut lines, 4, "a.jpg", "dog", "").unwrap();
        assert_eq!((lines.labels.all.len(), lines.splits.all.len(), lines.faults.all.len()), (2, 2, 1));
        assert_eq!(lines.by_image(), [1, 2, 0]);
        assert_eq!(lines.pairs().map(|(split, _)| split).collect::<Vec<_>>(), ["", "", "val"]);
        let mut number = 5;
        let error = loop {
            match push(&mut lines, number, "c.jpg", "cat", "") {
                Ok(()) => number += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.starts_with("a.csv: ") && error.contains("--limit-memory"), "{error}");
        // The distinct values of the first lines use most of the limit, so only a few more lines fit.
        assert!((10..20).contains(&number), "{number}");
    }

    #[test]
    fn splits_are_found_and_renamed() {
        let mut lines = Lines::new(Path::new("a.csv"), 100, Limits::DEFAULT);
        for (number, (path, split)) in (1..).zip([("t/a", ""), ("v\\b", "val"), ("c", "test"), ("d", "valid")]) {
            push(&mut lines, number, path, "1", split).unwrap();
        }
        lines.replace_paths(|path| path.contains('\\').then(|| path.replace('\\', "/"))).unwrap();
        lines.split_by_path(|path| Some(path.split_once('/')?.0)).unwrap();
        let split = |word: &str| match word {
            "test" => None,
            "val" | "valid" => Some("validation".to_string()),
            other => Some(other.to_string()),
        };
        lines.rename_splits(split).unwrap();
        let all =
            lines.all().iter().map(|line| format!("{} {} {}", line.number, lines.path(line), lines.split_word(line)));
        assert_eq!(all.collect::<Vec<_>>(), ["1 t/a t", "2 v/b validation", "4 d validation"]);
        assert_eq!(lines.all()[1].split, lines.all()[2].split);
    }
}

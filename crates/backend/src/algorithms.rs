//! The algorithms by which a device runs its operations, where its libraries offer several. Ranks send them to each other and
//! checkpoints keep them, so that all of a run computes the same bits. Only the device reads their names.

use std::collections::BTreeMap;
use std::fmt;

use super::error::Error;
use super::memory::DeviceMemory;
use super::planned::{PlanRequest, Planned};

/// A device that chooses among its libraries' algorithms.
pub trait AlgorithmChoice {
    /// The algorithms in use.
    fn used(&self) -> Algorithms;

    /// Uses these for everything planned from now on, as far as they are of such a device and run on it.
    fn adopt(&self, algorithms: &Algorithms);

    /// Whether the choice is known before anything is planned, as by a table.
    fn is_known_before(&self) -> bool {
        false
    }

    /// A few words for the log.
    fn describe(&self) -> String {
        let used = self.used();
        format!("{} for {}", used.by_operation.len(), used.on)
    }
}

/// Choices among algorithms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// Kind of device and versions of its libraries; the choices hold for these only.
    pub on: String,
    /// The choice for each operation, sizes included.
    pub by_operation: BTreeMap<String, String>,
}

impl Algorithms {
    /// From the text that [`fmt::Display`] writes; other lines are ignored.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let on = lines.next().unwrap_or_default().into();
        let pair = |line: &str| line.split_once('\t').map(|(choice, of)| (of.to_string(), choice.to_string()));
        Self { on, by_operation: lines.filter_map(pair).collect() }
    }

    /// The first operation for which `other` has another choice, and for how many it has.
    pub fn differs(&self, other: &Self) -> Option<(&str, usize)> {
        let own = |of: &String| other.by_operation.get(of);
        let mut all = self.by_operation.iter().filter(|(of, choice)| own(of).is_some_and(|own| own != *choice));
        all.next().map(|(of, _)| (of.as_str(), 1 + all.count()))
    }
}

impl fmt::Display for Algorithms {
    /// The device, then a line for each choice: the choice, a tab, the operation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.on)?;
        self.by_operation.iter().try_for_each(|(of, choice)| writeln!(f, "{choice}\t{of}"))
    }
}

// The implementations of an operation among which a device chooses by a table, for a program that measures them and writes the table.

/// One way to compute an operation.
pub struct Implementation<B: DeviceMemory> {
    /// As tables name it.
    pub name: &'static str,
    /// The operation, planned.
    pub plan: Box<dyn Planned<B>>,
}

/// A device that has several implementations of some operations.
pub trait Implementations<B: DeviceMemory> {
    /// All that there are for an operation; one where there is no choice. The one that the device's `plan` takes comes first.
    fn all(&self, request: &PlanRequest<'_, B>) -> Result<Vec<Implementation<B>>, Error>;

    /// The table's row of an operation: the implementation to be taken, and for each number of images its time over that of the fastest
    /// other. None for an operation without a choice.
    fn row(&self, request: &PlanRequest<'_, B>, by: &str, ratios: &[f64]) -> Option<String>;

    /// A table's text with these rows in place of those of the same sizes; `taken` says where and how, and `batches` with which numbers
    /// of images. The error names the line of `before` that is no row.
    fn table(&self, before: &str, taken: &str, batches: &[usize], rows: &[String]) -> Result<String, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(choices: &[(&str, &str)]) -> Algorithms {
        let by_operation = choices.iter().map(|(of, choice)| (of.to_string(), choice.to_string())).collect();
        Algorithms { on: "a GPU, a library".into(), by_operation }
    }

    #[test]
    fn choices_survive_as_text() {
        let all = some(&[("conv 3x3", "58 2=1 5=0"), ("conv 1x1", "0")]);
        assert_eq!(Algorithms::parse(&all.to_string()), all);
        assert_eq!(Algorithms::parse(""), Algorithms::default());
        assert_eq!(Algorithms::parse("on\nrubbish\n").by_operation.len(), 0);
    }

    #[test]
    fn choices_that_differ_are_counted() {
        let one = some(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(one.differs(&some(&[("a", "1"), ("c", "3"), ("d", "4")])), None);
        assert_eq!(one.differs(&some(&[("a", "1"), ("b", "7"), ("c", "8")])), Some(("b", 2)));
    }
}

//! The algorithms with which a device runs its operations, if its libraries offer several. Ranks exchange them and
//! checkpoints store them, so that the whole run computes the same bits. Only the device interprets their names.

use std::collections::BTreeMap;
use std::fmt;

use super::error::Error;
use super::memory::DeviceMemory;
use super::planned::{PlanRequest, Planned};

/// A device that chooses among its libraries' algorithms.
pub trait AlgorithmChoice {
    /// Returns the algorithms in use.
    fn used(&self) -> Algorithms;

    /// Uses these algorithms for everything planned from now on, if they are for the same kind of device and run on it.
    fn adopt(&self, algorithms: &Algorithms);

    /// Returns true if the choice is known before anything is planned, for example from a table.
    fn is_known_before(&self) -> bool {
        false
    }

    /// Returns a short description for the log.
    fn describe(&self) -> String {
        let used = self.used();
        format!("{} for {}", used.by_operation.len(), used.on)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// The device and its library versions. The choices are valid only for these.
    pub on: String,
    /// The choice for each operation. The key includes the operation's sizes.
    pub by_operation: BTreeMap<String, String>,
}

impl Algorithms {
    /// Parses the output of `Display`. Ignores lines without a tab, except the first.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let on = lines.next().unwrap_or_default().into();
        let pair = |line: &str| line.split_once('\t').map(|(choice, of)| (of.to_string(), choice.to_string()));
        Self { on, by_operation: lines.filter_map(pair).collect() }
    }

    /// Returns the first operation for which `other` has a different choice, and the number of such operations. Returns
    /// `None` if there are none.
    pub fn differs(&self, other: &Self) -> Option<(&str, usize)> {
        let own = |of: &String| other.by_operation.get(of);
        let mut all = self.by_operation.iter().filter(|(of, choice)| own(of).is_some_and(|own| own != *choice));
        all.next().map(|(of, _)| (of.as_str(), 1 + all.count()))
    }
}

impl fmt::Display for Algorithms {
    /// Writes the device, then a line for each choice: the choice, a tab, the operation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.on)?;
        self.by_operation.iter().try_for_each(|(of, choice)| writeln!(f, "{choice}\t{of}"))
    }
}

// The interface for measuring all implementations of an operation. A benchmark program writes the results to a table,
// from which a device then chooses.

/// A way to compute an operation.
pub struct Implementation<B: DeviceMemory> {
    pub name: &'static str,
    pub plan: Box<dyn Planned<B>>,
}

/// A device that can compute some operations in several ways.
pub trait Implementations<B: DeviceMemory> {
    /// Returns all implementations of an operation. The first is the one that the device's `plan` chooses. There is
    /// only one if the device has no choice.
    fn all(&self, request: &PlanRequest<'_, B>) -> Result<Vec<Implementation<B>>, Error>;

    /// Returns the operation's row of the table. `by` names the implementation to use. `ratios` has, for each measured
    /// number of images, its time divided by the time of the fastest other implementation. Returns `None` for an
    /// operation without a choice.
    fn row(&self, request: &PlanRequest<'_, B>, by: &str, ratios: &[f64]) -> Option<String>;

    /// Returns the text of the table `before` with `rows` added or replaced. Rows are for the same operation if their
    /// sizes are equal. `taken` describes the measurement, and `batches` are the measured numbers of images. The error
    /// names a line of `before` that is not a row.
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
    fn algorithms_are_parsed_from_their_own_text() {
        let all = some(&[("conv 3x3", "58 2=1 5=0"), ("conv 1x1", "0")]);
        assert_eq!(Algorithms::parse(&all.to_string()), all);
        assert_eq!(Algorithms::parse(""), Algorithms::default());
        assert_eq!(Algorithms::parse("on\nrubbish\n").by_operation.len(), 0);
    }

    #[test]
    fn differs_counts_operations_with_another_algorithm() {
        let one = some(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(one.differs(&some(&[("a", "1"), ("c", "3"), ("d", "4")])), None);
        assert_eq!(one.differs(&some(&[("a", "1"), ("b", "7"), ("c", "8")])), Some(("b", 2)));
    }
}

//! Two runs beside each other.

use std::collections::{BTreeMap, BTreeSet};

use super::log::Log;
use super::run::Run;

/// A relative difference of losses above which runs have parted for good, not by rounding.
const FAR: f64 = 0.01;

/// A key whose values differ; `None` where a run does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// Its path.
    pub key: String,
    /// In the first run.
    pub first: Option<String>,
    /// In the second.
    pub second: Option<String>,
}

/// Where the losses of two runs part, over the steps that both logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parting {
    /// Steps that both have.
    pub shared: u64,
    /// The first of them whose losses are not the same number.
    pub apart: Option<u64>,
    /// The first of them whose losses differ by more than one per cent.
    pub far: Option<u64>,
}

/// Keys with different values, by name.
pub fn compare(first: &BTreeMap<String, String>, second: &BTreeMap<String, String>) -> Vec<Differing> {
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differing = keys.into_iter().filter(|key| first.get(*key) != second.get(*key));
    let pair =
        |key: &String| Differing { key: key.clone(), first: first.get(key).cloned(), second: second.get(key).cloned() };
    differing.map(pair).collect()
}

impl Parting {
    /// Of two logs.
    pub fn of(first: &Log, second: &Log) -> Self {
        let losses: BTreeMap<u64, f64> = first.steps.iter().map(|step| (step.step, step.loss)).collect();
        let mut parting = Self::default();
        for step in &second.steps {
            let Some(loss) = losses.get(&step.step) else { continue };
            parting.shared += 1;
            let same = loss.to_bits() == step.loss.to_bits();
            let near = same || (loss - step.loss).abs() <= FAR * loss.abs().max(step.loss.abs());
            if !same {
                parting.apart.get_or_insert(step.step);
            }
            if !near {
                parting.far.get_or_insert(step.step);
            }
        }
        parting
    }
}

impl Run {
    /// What the last start said of machine, ranks and data, with the digest of the end.
    pub fn circumstances(&self) -> BTreeMap<String, String> {
        let Some(start) = self.log.starts.last() else { return BTreeMap::new() };
        let mut facts = start.facts.clone();
        // where a run lies is no difference between runs
        facts.remove("out");
        facts.insert("ranks".into(), start.ranks.to_string());
        facts.insert("images".into(), start.images.to_string());
        if let Some(end) = &self.log.end {
            facts.insert("digest".into(), end.digest.clone());
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(losses: &[(u64, f64)]) -> Log {
        let line = |(step, loss): &(u64, f64)| format!("{{\"event\":\"step\",\"step\":{step},\"loss\":{loss}}}\n");
        Log::from_lines(losses.iter().map(line).collect::<String>().as_bytes()).unwrap()
    }

    #[test]
    fn losses_part_first_by_a_little() {
        let one = log(&[(1, 2.5), (2, 2.0), (3, 1.5), (4, 1.0)]);
        let two = log(&[(1, 2.5), (3, 1.5000001), (4, 1.2), (9, 1.0)]);
        assert_eq!(Parting::of(&one, &two), Parting { shared: 3, apart: Some(3), far: Some(4) });
        assert_eq!(Parting::of(&one, &one), Parting { shared: 4, apart: None, far: None });
        assert_eq!(Parting::of(&one, &log(&[])).shared, 0);
    }

    #[test]
    fn keys_that_differ() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let found = compare(&map(&[("a", "1"), ("b", "2")]), &map(&[("a", "1"), ("b", "3"), ("c", "4")]));
        let row = |key: &str, first: Option<&str>, second: &str| Differing {
            key: key.into(),
            first: first.map(String::from),
            second: Some(second.into()),
        };
        assert_eq!(found, [row("b", Some("2"), "3"), row("c", None, "4")]);
    }
}

//! Labels as sources have them, numbers or names, and the classes that they make.

use super::classes;
use crate::error::Error;
use crate::options::ConvertOptions;
use loaders::nearest::did_you_mean;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A higher number is no class.
const MOST: i64 = 1 << 20;

/// A label in a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Label {
    /// A number of a class.
    Number(i64),
    /// A name of a class.
    Name(String),
}

impl Label {
    /// The label that a text holds; blanks around it do not count.
    pub(crate) fn of_text(text: &str) -> Self {
        let text = text.trim();
        text.parse().map_or_else(|_| Label::Name(text.to_string()), Label::Number)
    }

    /// The label that a JSON value holds.
    pub(crate) fn of_json(value: &serde_json::Value) -> Option<Self> {
        match value {
            serde_json::Value::Number(number) => number.as_i64().map(Label::Number),
            serde_json::Value::String(text) => Some(Label::Name(text.clone())),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Label::Number(number) => number.to_string(),
            Label::Name(name) => name.clone(),
        }
    }
}

/// The classes of a source, and which label is which of them.
#[derive(Debug)]
pub(crate) struct Classes {
    pub names: Vec<String>,
    by_name: BTreeMap<String, u32>,
    /// Whether a number that is no name counts the names from 0.
    counts: bool,
}

impl Classes {
    /// The classes of the options or of a list that a source has, else those of the labels themselves: numbers from 0, or from 1, to the
    /// highest; names in sorted order.
    ///
    /// # Errors
    /// Labels that no classes can be made of; lists with a class twice.
    pub(crate) fn of(
        src: &Path,
        options: &ConvertOptions,
        listed: Option<Vec<String>>,
        labels: &BTreeSet<Label>,
    ) -> Result<Self, Error> {
        let given = options.classes.as_deref().map(classes::read).transpose()?.or(listed);
        let (names, counts) = match given {
            Some(names) => (names, true),
            None => (found(src, labels)?, false),
        };
        classes::check(src, &names)?;
        let by_name = (0u32..).zip(&names).map(|(label, name)| (name.clone(), label)).collect();
        Ok(Classes { names, by_name, counts })
    }

    /// The class of a label.
    pub(crate) fn label(&self, label: &Label) -> Option<u32> {
        let named = self.by_name.get(&label.text()).copied();
        match label {
            Label::Number(number) if self.counts && named.is_none() => {
                u32::try_from(*number).ok().filter(|&number| (number as usize) < self.names.len())
            }
            _ => named,
        }
    }

    /// What to say of a label that is no class.
    pub(crate) fn unknown(&self, label: &Label) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let text = label.text();
        format!(
            "label `{}` is none of the {} classes{}",
            loaders::printable(&text),
            names.len(),
            did_you_mean(&text, &names)
        )
    }
}

/// The classes of labels of which there is no list.
fn found(src: &Path, labels: &BTreeSet<Label>) -> Result<Vec<String>, Error> {
    let numbers: Vec<i64> =
        labels.iter().filter_map(|l| if let Label::Number(n) = l { Some(*n) } else { None }).collect();
    let (Some(&least), Some(&most)) = (numbers.first(), numbers.last()) else {
        return Ok(labels.iter().map(Label::text).collect());
    };
    if numbers.len() < labels.len() {
        let name = labels.iter().find(|l| matches!(l, Label::Name(_))).map(Label::text).unwrap_or_default();
        let what = format!(
            "has labels of both kinds: the number {least} and the name `{}`; use one kind",
            loaders::printable(&name)
        );
        return Err(Error::input(src, what));
    }
    if least < 0 || most > MOST {
        let what = format!("has labels from {least} to {most}; expected numbers from 0, or names");
        return Err(Error::input(src, what));
    }
    Ok((i64::from(least == 1)..=most).map(|number| number.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(labels: &[Label]) -> Result<Classes, Error> {
        let labels: BTreeSet<Label> = labels.iter().cloned().collect();
        Classes::of(Path::new("src"), &ConvertOptions::default(), None, &labels)
    }

    #[test]
    fn numbers_and_names_become_classes() {
        let number = Label::Number;
        let name = |text: &str| Label::Name(text.into());
        let found = classes(&[number(3), number(0)]).unwrap();
        assert_eq!((found.names.join(" "), found.label(&number(3))), ("0 1 2 3".into(), Some(3)));
        let found = classes(&[number(2), number(1)]).unwrap();
        assert_eq!(
            (found.names.join(" "), found.label(&number(2)), found.label(&number(0))),
            ("1 2".into(), Some(1), None)
        );
        let found = classes(&[name("dog"), name("cat")]).unwrap();
        assert_eq!((found.names.join(" "), found.label(&name("dog"))), ("cat dog".into(), Some(1)));
        assert!(found.unknown(&name("dgo")).contains("did you mean"), "{}", found.unknown(&name("dgo")));
        for (bad, part) in [
            (&[number(1), name("cat")][..], "both kinds: the number 1 and the name `cat`"),
            (&[number(-1), number(1)], "from -1 to 1"),
            (&[name("cat"), name("Cat")], "upper and lower case"),
        ] {
            let message = classes(bad).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_list_is_counted_by_numbers_and_found_by_names() {
        let listed = Some(vec!["cat".to_string(), "dog".into(), "0".into()]);
        let found = Classes::of(Path::new("src"), &ConvertOptions::default(), listed, &BTreeSet::new()).unwrap();
        let label = |text| found.label(&Label::of_text(text));
        assert_eq!([" dog ", "1", "0", "3", "cow"].map(label), [Some(1), Some(1), Some(2), None, None]);
    }
}

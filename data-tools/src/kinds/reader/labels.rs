//! Labels of sources, which are numbers or texts, and the classes derived from them.
//!
//! If there is a list of classes, a number is an index into the list, counted from 0, and a text is a name in it. If
//! all texts of a source are numbers and no class in the list has a number as its name, the texts are indices as well.
//! Names and indices are never mixed among texts. Labels of `.cls` files count as numbers only if all of them are.
//!
//! Without a list, the classes are the numbers from 0 (or from 1, if 1 is the lowest) to the highest, or all names in
//! sorted order.

use base::text::{did_you_mean, printable};

use super::names;
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::source::MAX_CLASS;
use crate::splits::TRAIN;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A label as the source states it, before it is mapped to a class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Label {
    Number(i64),
    /// A text from a format that distinguishes numbers and texts.
    Name(String),
    /// A field of a table. If there is no list of classes, it may be a number.
    Field(String),
    /// A number past the end of its file's class list. It is not a class.
    Outside(i64),
}

impl Label {
    /// Creates a label from a table field. Surrounding whitespace is ignored.
    pub(crate) fn from_field(text: &str) -> Self {
        Label::Field(text.trim().to_string())
    }

    /// Creates a label from the content of a file: a number if possible, otherwise a name.
    pub(crate) fn from_file(text: &str) -> Self {
        parse_number(text).map_or_else(|| Label::from_text(text), Label::Number)
    }

    /// Creates a name from a text, even if it looks like a number. Surrounding whitespace is ignored.
    pub(crate) fn from_text(text: &str) -> Self {
        Label::Name(text.trim().to_string())
    }

    pub(crate) fn from_json(value: &serde_json::Value) -> Option<Self> {
        match value {
            serde_json::Value::Number(number) => number.as_i64().map(Label::Number),
            serde_json::Value::String(text) => Some(Label::from_text(text)),
            _ => None,
        }
    }

    /// Returns the size of the label's text or number in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Label::Number(_) | Label::Outside(_) => size_of::<i64>(),
            Label::Name(text) | Label::Field(text) => text.len(),
        }
    }

    /// Replaces a number by a name with the same digits.
    pub(crate) fn make_name(&mut self) {
        *self = Label::Name(self.text());
    }

    /// Returns the number that the label represents if there is no list of classes.
    fn number(&self) -> Option<i64> {
        match self {
            Label::Number(number) => Some(*number),
            Label::Name(_) | Label::Outside(_) => None,
            Label::Field(text) => parse_number(text),
        }
    }

    /// Returns the label's text as written in the source.
    fn text(&self) -> String {
        match self {
            Label::Number(number) | Label::Outside(number) => number.to_string(),
            Label::Name(text) | Label::Field(text) => text.clone(),
        }
    }
}

fn parse_number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

/// The classes of a source. Labels are mapped to them.
#[derive(Debug)]
pub(crate) struct Classes {
    pub names: Vec<String>,
    by_name: BTreeMap<String, u32>,
    /// The classes that `train` has. Other splits may use only these. `None` if there is no `train` split or if images
    /// can have more than one label.
    train_classes: Option<BTreeSet<u32>>,
    /// True if there is a list of classes. Numbers are then indices into it.
    is_list: bool,
    /// True if texts are indices into the list too: all of them are numbers, and no class has a number as its name.
    texts_are_indices: bool,
}

impl Classes {
    /// Takes the classes from the options or the source's list. Without a list, collects the classes from `train`, or
    /// from all labels if there is no `train`. `labels` contains each label with its split. With `several`, images may
    /// have more than one label, and any split may have classes that `train` lacks. There are no classes if the source
    /// has targets. Returns an error if the labels cannot be classes or a list contains a class twice.
    pub(crate) fn from_labels<'a>(
        src: &Path,
        options: &ConvertOptions,
        listed: Option<Vec<String>>,
        several: bool,
        labels: impl Iterator<Item = (&'a str, &'a Label)>,
    ) -> Result<Self, Error> {
        let (mut train, mut others) = (BTreeSet::new(), BTreeSet::new());
        for (split, label) in labels {
            let side = if split == TRAIN && !several { &mut train } else { &mut others };
            if !side.contains(label) {
                side.insert(label.clone());
            }
        }
        let all: BTreeSet<Label> = train.union(&others).cloned().collect();
        let given = options.classes.as_deref().map(names::read).transpose()?.or(listed);
        let given = given.filter(|_| options.targets.is_empty());
        let is_list = given.is_some();
        let names = match given {
            Some(names) => names,
            None => classes_from_labels(src, if train.is_empty() { &all } else { &train }, options.on_bad)?,
        };
        names::check(src, &names)?;
        let by_name = (0u32..).zip(&names).map(|(label, name)| (name.clone(), label)).collect();
        let is_number = |label: &Label| matches!(label, Label::Number(_)) || parse_number(&label.text()).is_some();
        let texts_are_indices =
            is_list && all.iter().all(is_number) && names.iter().all(|name| parse_number(name).is_none());
        let mut classes = Classes { names, by_name, train_classes: None, is_list, texts_are_indices };
        classes.train_classes =
            (!train.is_empty()).then(|| train.iter().filter_map(|label| classes.class(label)).collect());
        Ok(classes)
    }

    /// Returns the class for a label, or an error message if images in this split cannot have it.
    pub(crate) fn class_in_split(&self, split: &str, label: &Label) -> Result<u32, String> {
        let class = self.class(label).ok_or_else(|| self.unknown(label))?;
        match &self.train_classes {
            Some(train_classes) if split != TRAIN && !train_classes.contains(&class) => Err(format!(
                "label `{}`: train has no image of this class, so a model cannot learn it",
                base::text::printable(&label.text())
            )),
            _ => Ok(class),
        }
    }

    /// Returns the class of a label, or `None` if the label is not a class.
    pub(crate) fn class(&self, label: &Label) -> Option<u32> {
        let named = |name: &str| self.by_name.get(name).copied();
        let number = match label {
            Label::Outside(_) => return None,
            Label::Number(number) => Some(*number),
            text if self.texts_are_indices => parse_number(&text.text()),
            _ if self.is_list => None,
            text => text.number(),
        };
        match number {
            Some(number) if self.is_list => {
                u32::try_from(number).ok().filter(|&number| (number as usize) < self.names.len())
            }
            Some(number) => named(&number.to_string()),
            None => named(&label.text()),
        }
    }

    pub(crate) fn unknown(&self, label: &Label) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let text = label.text();
        let train = if self.train_classes.is_some() && !self.is_list { " of train" } else { "" };
        let range = match names.as_slice() {
            [first, .., last]
                if label.number().is_some() && parse_number(first).is_some() && parse_number(last).is_some() =>
            {
                format!(" ({first} to {last})")
            }
            _ => String::new(),
        };
        format!(
            "label `{}` is not one of the {} classes{train}{range}{}",
            base::text::printable(&text),
            names.len(),
            if label.number().is_some() { String::new() } else { did_you_mean(&text, &names) }
        )
    }
}

/// Derives the class list from the labels. With `--on-bad skip`, ignores invalid numbers here, because a later lookup reports them.
fn classes_from_labels(src: &Path, labels: &BTreeSet<Label>, on_bad: OnBad) -> Result<Vec<String>, Error> {
    let is_class = |number: &i64| on_bad == OnBad::Fail || (0..=MAX_CLASS).contains(number);
    let numbers: Vec<i64> = labels.iter().filter_map(Label::number).filter(is_class).collect();
    let (Some(&least), Some(&most)) = (numbers.iter().min(), numbers.iter().max()) else {
        let names = labels.iter().filter(|label| label.number().is_none()).map(Label::text);
        let names: BTreeSet<String> = names.collect();
        return match names.is_empty() && !labels.is_empty() {
            true => {
                let first = labels
                    .first()
                    .map_or_else(String::new, |label| format!(", such as `{}`", printable(&label.text())));
                let what = format!(
                    "the labels are not valid classes{first}; expected numbers from 0 to {MAX_CLASS}, or names"
                );
                Err(Error::input(src, what))
            }
            false => Ok(names.into_iter().collect()),
        };
    };
    if let Some(name) = labels.iter().find(|label| label.number().is_none()) {
        let what = format!(
            "labels are both numbers and names, such as {least} and `{}`; use only one kind",
            base::text::printable(&name.text())
        );
        return Err(Error::input(src, what));
    }
    if least < 0 || most > MAX_CLASS {
        let what = format!("labels range from {least} to {most}; expected numbers from 0 to {MAX_CLASS}, or names");
        return Err(Error::input(src, what));
    }
    Ok((i64::from(least == 1)..=most).map(|number| number.to_string()).collect())
}

/// Label numbers with their names and the place where each name was found.
#[derive(Debug, Default)]
pub(crate) struct NumberNames(BTreeMap<i64, (String, String)>);

/// A source's class list after names were assigned to numbers.
pub(crate) struct NamedClasses {
    pub list: Option<Vec<String>>,
    pub notes: Vec<String>,
}

impl NumberNames {
    /// Records that `place` names the class `number` as `name`. Returns an error if an earlier place gave the number a
    /// different name. The error lists both.
    pub(crate) fn note(
        &mut self,
        src: &Path,
        number: i64,
        name: &str,
        place: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let name = name.trim();
        match self.0.get(&number) {
            _ if name.is_empty() => {}
            None => drop(self.0.insert(number, (name.to_string(), place()))),
            Some((first, _)) if first == name => {}
            Some((first, earlier)) => {
                let what = format!(
                    "label {number} is the class `{}` in {earlier}, but `{}` in {}; use the same number for a class everywhere",
                    printable(first),
                    printable(name),
                    place()
                );
                return Err(Error::input(src, what));
            }
        }
        Ok(())
    }

    /// Replaces numbers in `labels` with names, unless a class list from the options or the source renames them.
    /// Returns the class list to use. Returns an error if the source's list and a record assign different names to a
    /// number.
    pub(crate) fn apply<'a>(
        self,
        src: &Path,
        options: &ConvertOptions,
        listed: Option<Vec<String>>,
        labels: impl Iterator<Item = &'a mut Label>,
    ) -> Result<NamedClasses, Error> {
        let mut notes = Vec::new();
        if self.0.is_empty() {
            return Ok(NamedClasses { list: listed, notes });
        }
        let given = options.classes.as_deref().map(names::read).transpose()?;
        let places: BTreeMap<i64, &str> = self.0.iter().map(|(number, (_, place))| (*number, place.as_str())).collect();
        let class_names = names::unique(self.0.iter().map(|(number, (name, _))| (*number, name.as_str())));
        if let Some(list) = given.as_ref().or(listed.as_ref()) {
            match names::first_moved(&class_names, list) {
                None => {
                    notes.extend(names::rename_note(&class_names, list));
                    return Ok(NamedClasses { list: listed, notes });
                }
                Some(number) if given.is_none() => {
                    let at = |number: i64| usize::try_from(number).ok().and_then(|at| list.get(at));
                    let what = format!(
                        "label {number} is the class `{}` in {}, but `{}` in classes.txt; correct one of them",
                        printable(&class_names[&number]),
                        places[&number],
                        at(number).map_or("none".into(), |name| printable(name).to_string())
                    );
                    return Err(Error::input(src, what));
                }
                Some(_) => {}
            }
        }
        let (mut least, mut most) =
            (i64::from(!class_names.contains_key(&0)), class_names.keys().next_back().copied().unwrap_or(0));
        for label in labels {
            let Label::Number(number) = *label else { continue };
            if (0..=MAX_CLASS).contains(&number) {
                (least, most) = (least.min(number), most.max(number));
                *label = Label::Name(name_of(&class_names, number));
            }
        }
        let list = listed
            .or_else(|| Some((least..=most.min(MAX_CLASS)).map(|number| name_of(&class_names, number)).collect()));
        Ok(NamedClasses { list, notes })
    }
}

fn name_of(names: &BTreeMap<i64, String>, number: i64) -> String {
    names.get(&number).cloned().unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(labels: &[Label], listed: Option<&[&str]>) -> Result<Classes, Error> {
        let labels: BTreeSet<Label> = labels.iter().cloned().collect();
        let listed = listed.map(|names| names.iter().map(|name| name.to_string()).collect());
        Classes::from_labels(
            Path::new("src"),
            &ConvertOptions::default(),
            listed,
            false,
            labels.iter().map(|label| ("train", label)),
        )
    }

    fn number(number: i64) -> Label {
        Label::Number(number)
    }

    #[test]
    fn numbers_and_names_become_classes() {
        let (name, field) = (Label::from_text, Label::from_field);
        let cases: [(&[Label], &str, Label, Option<u32>); 6] = [
            (&[number(3), number(0)], "0 1 2 3", number(3), Some(3)),
            (&[number(2), number(1)], "1 2", number(2), Some(1)),
            (&[field("10"), field("01"), field("2")], "1 2 3 4 5 6 7 8 9 10", field("01"), Some(0)),
            (&[name("dog"), name(" cat ")], "cat dog", name("dog"), Some(1)),
            (&[field("dog"), field("cat"), name("cat")], "cat dog", field("dog"), Some(1)),
            // The source distinguishes numbers and texts, so these are names.
            (&[name("10"), name("2")], "10 2", name("2"), Some(1)),
        ];
        for (labels, names, label, class) in cases {
            let found = classes(labels, None).unwrap();
            assert_eq!((found.names.join(" ").as_str(), found.class(&label)), (names, class));
            assert_eq!(found.class(&number(0)).is_some(), names.starts_with('0'));
        }
        let found = classes(&[name("dog")], None).unwrap();
        assert!(found.unknown(&name("dgo")).contains("did you mean"), "{}", found.unknown(&name("dgo")));
        for (bad, part) in [
            (&[number(1), name("cat")][..], "1 and `cat`"),
            (&[field("7"), field("5"), field("cat")], "5 and `cat`"),
            (&[number(-1), number(1)], "from -1 to 1"),
            (&[name("cat"), name("Cat")], "`Cat` and `cat`"),
        ] {
            let message = classes(bad, None).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    /// Labels, a list of classes, and the expected class of each label.
    type Case<'a> = (Vec<Label>, &'a [&'a str], &'a [Option<u32>]);

    #[test]
    fn numbers_count_a_list_and_texts_name_it() {
        let all = |text: &'static str, of: fn(&str) -> Label| text.split(' ').map(of).collect::<Vec<_>>();
        let numbers = |text| all(text, |text| number(text.parse().unwrap()));
        let texts = |text| all(text, Label::from_text);
        let fields = |text| all(text, Label::from_field);
        let cases: [Case<'_>; 9] = [
            (numbers("0 2 3 -1"), &["cat", "dog", "fox"], &[Some(0), Some(2), None, None]),
            // A number is an index, regardless of the class names.
            (numbers("0 1 2 10"), &["1", "2", "10"], &[Some(0), Some(1), Some(2), None]),
            (fields("dog cat cow"), &["cat", "dog"], &[Some(1), Some(0), None]),
            (fields("01 02 03"), &["01", "02", "03", "04"], &[Some(0), Some(1), Some(2)]),
            (texts("01 02 1"), &["01", "02"], &[Some(0), Some(1), None]),
            // All texts are numbers, and no class has a number as its name.
            (fields("1 02 5"), &["cat", "dog", "fox"], &[Some(1), Some(2), None]),
            (texts("1 0"), &["cat", "dog"], &[Some(1), Some(0)]),
            // If a class has a number as its name, or a text is not a number, then texts are names.
            (fields("0 1"), &["cat", "dog", "0"], &[Some(2), None]),
            (fields("0 dog"), &["cat", "dog"], &[None, Some(1)]),
        ];
        for (labels, listed, expected) in cases {
            let found = classes(&labels, Some(listed)).unwrap();
            let got: Vec<Option<u32>> = labels.iter().map(|label| found.class(label)).collect();
            assert_eq!(got, expected, "{labels:?} in {listed:?}");
        }
        // In JSON, numbers are indices and texts are names, even in the same source.
        let both = [number(1), Label::from_text("cat")];
        let found = classes(&both, Some(&["cat", "dog"])).unwrap();
        assert_eq!(both.map(|label| found.class(&label)), [Some(1), Some(0)]);
    }

    #[test]
    fn a_file_holds_a_number_or_a_name() {
        assert_eq!([" 7\n", "007", "cat\n"].map(Label::from_file), [number(7), number(7), Label::from_text("cat")]);
    }

    #[test]
    fn contradictions_name_both_places() {
        let mut names = NumberNames::default();
        names.note(Path::new("src"), 1, "b", || "x.json".into()).unwrap();
        names.note(Path::new("src"), 1, " b ", || "y.json".into()).unwrap();
        let message = names.note(Path::new("src"), 1, "c", || "z.json".into()).unwrap_err().to_string();
        for part in ["label 1 ", "`b` in x.json", "`c` in z.json"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let mut labels = [Label::Number(1), Label::Number(0), Label::Number(-1)];
        let listed = names.apply(Path::new("src"), &ConvertOptions::default(), None, labels.iter_mut()).unwrap();
        assert_eq!(listed.list.unwrap(), ["0", "b"]);
        assert_eq!(labels, [Label::Name("b".into()), Label::Name("0".into()), Label::Number(-1)]);
    }
}

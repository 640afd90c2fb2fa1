//! Images with their labels, as a table or a JSON file lists them: which lines can be used, and what is wrong with the others.

use super::labels::{Classes, Label};
use super::listing::{Listing, Place};
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::splits::{self, Assign, Names, TRAIN, Unknown};
use crate::text;
use loaders::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// A line of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its number in the file, from 1.
    pub number: u64,
    /// The image, relative to the folder of images.
    pub path: String,
    /// Its labels: several, or none, if the list allows that.
    pub labels: Vec<Label>,
    /// The word for its split; empty where there is none.
    pub split: String,
    /// Why the line has no labels, where it should have some.
    pub fault: Option<String>,
}

/// What a list is, beside its lines.
pub(crate) struct List<'a> {
    /// The folder that paths are relative to.
    pub folder: &'a Path,
    pub classes: &'a Classes,
    /// Whether images may have several labels, or none.
    pub several: bool,
    /// Whether a line may refer to a file outside the folder.
    pub allow_outside: bool,
}

/// What cannot be used.
#[derive(Debug)]
pub(crate) struct Bad {
    /// The number of its line; none for what has no line.
    pub line: Option<u64>,
    pub what: String,
}

/// The lines of a list, looked at.
pub(crate) struct Listed {
    /// The files of each split.
    pub found: Vec<(String, Listing)>,
    pub bad: Vec<Bad>,
    /// Lines that say of an image what an earlier line says.
    pub repeats: u64,
}

/// Replaces backslashes in Windows paths with slashes, unless a file has exactly that name.
pub(crate) fn use_slashes(folder: &Path, lines: &mut [Line]) {
    for line in lines {
        if line.path.contains('\\') && !folder.join(&line.path).exists() {
            line.path = line.path.replace('\\', "/");
        }
    }
}

/// Replaces each line's split word with the split's name and drops lines in unwanted splits.
///
/// # Errors
/// Returns an error if some words are known split names and others are not.
pub(crate) fn prepare(
    src: &Path,
    folder: &Path,
    mut lines: Vec<Line>,
    options: &ConvertOptions,
) -> Result<Vec<Line>, Error> {
    use_slashes(folder, &mut lines);
    lines.iter_mut().filter(|line| line.split.is_empty()).for_each(|line| line.split = TRAIN.to_string());
    let words: BTreeSet<&str> = lines.iter().map(|line| line.split.as_str()).filter(|word| is_name(word)).collect();
    let words: Vec<&str> = words.into_iter().collect();
    let assign = Assign { src, map: &options.split_map, names: Names::Whole, unknown: Unknown::Own };
    let splits = assign.splits(&words)?;
    let splits: BTreeMap<String, Option<String>> = words.iter().map(|word| word.to_string()).zip(splits).collect();
    lines.retain_mut(|line| match splits.get(&line.split) {
        Some(Some(split)) => {
            line.split.clone_from(split);
            true
        }
        Some(None) => false,
        // not a valid split name: reported as a faulty line later
        None => true,
    });
    Ok(lines)
}

/// Returns the classes that the lines use.
pub(crate) fn classes(
    src: &Path,
    lines: &[Line],
    several: bool,
    listed: Option<Vec<String>>,
    options: &ConvertOptions,
) -> Result<Classes, Error> {
    let labels = lines.iter().flat_map(|line| line.labels.iter().map(|label| (line.split.as_str(), label)));
    match several {
        true => Classes::of_several(src, options, listed, &labels.map(|(_, label)| label.clone()).collect()),
        false => Classes::of(src, options, listed, labels),
    }
}

/// The texts of the labels in a column: parted by `separator`, or by `;` and `|` where none is given.
pub(crate) fn parted(text: &str, separator: Option<char>) -> Vec<Label> {
    let parts = |c: char| separator.map_or([';', '|'].contains(&c), |separator| c == separator);
    text.split(parts).map(str::trim).filter(|label| !label.is_empty()).map(Label::of_field).collect()
}

impl List<'_> {
    /// Looks at all lines; a line that cannot be used is noted.
    pub(crate) fn look(&self, lines: &[Line]) -> Listed {
        let (mut found, mut bad, mut repeats) = (BTreeMap::new(), Vec::new(), 0);
        let mut seen: BTreeMap<&str, First<'_>> = BTreeMap::new();
        for line in lines {
            let path = line.path.trim_start_matches("./");
            let first = seen.get(path);
            let usable = self.beside(line, first);
            match (&usable, first) {
                (Ok(_), Some(_)) => repeats += 1,
                (Ok(usable), None) => {
                    drop(seen.insert(path, First { line: line.number, usable: Some(usable.clone()) }))
                }
                // the line that should have had all labels of its image
                (Err(_), None) if self.several => drop(seen.insert(path, First { line: line.number, usable: None })),
                (Err(_), _) => {}
            }
            match usable {
                Ok(usable) => self.add(line, &usable, &mut found),
                Err(what) => bad.push(Bad { line: Some(line.number), what }),
            }
        }
        let found = found.into_iter().map(|((_, split), listing)| (split.to_string(), listing)).collect();
        Listed { found, bad, repeats }
    }

    /// Adds the image of a line to the listing of its split.
    fn add<'a>(&self, line: &Line, usable: &Usable<'a>, found: &mut BTreeMap<(u8, &'a str), Listing>) {
        let listing = found.entry((splits::rank(usable.split), usable.split)).or_insert_with(|| {
            let mut listing = Listing::default();
            listing.place(Place::Folder(self.folder.to_path_buf()));
            listing
        });
        match self.several {
            true => listing.push_set(&line.path, &usable.classes, (0, 0)),
            false => listing.push(&line.path, usable.classes[0], (0, 0)),
        }
    }

    /// Returns true if a path that is absolute or contains `..` resolves to a place outside the folder.
    fn leads_outside(&self, named: &Path) -> bool {
        let is_plain = named.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { self.folder };
        let is_inside = || Some(folder.join(named).canonicalize().ok()?.starts_with(folder.canonicalize().ok()?));
        !is_plain && !is_inside().unwrap_or(false)
    }

    /// Split and classes of a line; or what is wrong with it, or with it beside the `first` line of its image.
    fn beside<'a>(&self, line: &'a Line, first: Option<&First<'a>>) -> Result<Usable<'a>, String> {
        let path = printable(&line.path);
        let Some(First { line: number, usable: Some(first) }) = first.filter(|_| !self.several) else {
            return match first {
                Some(first) => Err(format!("{path} is on line {} already; give all its labels there", first.line)),
                None => self.usable(line),
            };
        };
        let usable = self.usable(line)?;
        if usable.classes != first.classes {
            let name = first.classes.first().map_or("", |class| &self.classes.names[*class as usize]);
            let cure = "in a column `labels` an image may have several";
            return Err(format!("{path} is on line {number} already, with the label `{}`; {cure}", printable(name)));
        }
        if usable.split != first.split {
            return Err(format!("{path} is on line {number} already, in the split {}", first.split));
        }
        Ok(usable)
    }

    /// Split and classes of a line; or what is wrong with it.
    fn usable<'a>(&self, line: &'a Line) -> Result<Usable<'a>, String> {
        let no_label = line.labels.is_empty() && !self.several;
        if let Some(fault) = &line.fault {
            return Err(fault.clone());
        }
        if line.path.is_empty() || no_label {
            let column = if line.path.is_empty() { "path" } else { "label" };
            return Err(format!("it has no {column}"));
        }
        let split = split(&line.split)?;
        let classes = self.classes_of(split, &line.labels)?;
        let named = Path::new(&line.path);
        if !self.allow_outside && self.leads_outside(named) {
            let what = "outside of the folder of images, whose files alone a list may name; --allow-outside takes it";
            return Err(format!("{}: {what}", line.path));
        }
        let path = self.folder.join(named);
        match path.metadata() {
            Ok(meta) if meta.is_file() => Ok(Usable { split, classes }),
            Ok(_) => Err(format!("{}: not a file", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(format!("{}: not found", path.display())),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    /// All that is wrong with a line's labels is named.
    fn classes_of(&self, split: &str, labels: &[Label]) -> Result<Vec<u32>, String> {
        let (mut classes, mut wrong) = (BTreeSet::new(), Vec::new());
        for label in labels {
            match self.classes.of_split(split, label) {
                Err(what) => wrong.push(what),
                Ok(class) if !classes.insert(class) => {
                    wrong.push(format!("it has the label `{}` twice", printable(&self.classes.names[class as usize])));
                }
                Ok(_) => {}
            }
        }
        if wrong.is_empty() { Ok(classes.into_iter().collect()) } else { Err(wrong.join("; ")) }
    }
}

/// The first line of an image; `usable` is missing if it cannot be used.
struct First<'a> {
    line: u64,
    usable: Option<Usable<'a>>,
}

/// What a usable line says.
#[derive(Clone)]
struct Usable<'a> {
    split: &'a str,
    classes: Vec<u32>,
}

/// Returns the line's split if it is a valid name.
fn split(word: &str) -> Result<&str, String> {
    match is_name(word) {
        true => Ok(word),
        false => Err(format!("split `{}`: expected train, validation, test or another name", printable(word))),
    }
}

/// Returns true if a word is a valid split name.
fn is_name(word: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    word.chars().all(fits) && word.bytes().any(|b| b.is_ascii_alphabetic())
}

/// Returns messages for all unusable lines in the list `src`, or an error that contains them. `cure` tells the user how to fix them.
pub(crate) fn check(src: &Path, bad: &[Bad], cure: &str, options: &ConvertOptions) -> Result<Vec<String>, Error> {
    let lines: Vec<String> = bad
        .iter()
        .map(|bad| match bad.line {
            Some(line) => format!("line {line}: {}", printable(&bad.what)),
            None => printable(&bad.what).into_owned(),
        })
        .collect();
    match (lines.is_empty(), options.on_bad) {
        (true, _) => Ok(Vec::new()),
        (false, OnBad::Skip) => {
            Ok(lines.into_iter().map(|line| format!("{}: {line}", printable(&src.to_string_lossy()))).collect())
        }
        (false, OnBad::Fail) => {
            let numbered = bad.iter().filter(|bad| bad.line.is_some()).count();
            let (word, count) = if numbered == bad.len() { ("line", numbered) } else { ("entry", bad.len()) };
            let count = if word == "line" || count == 1 {
                text::plural(count as u64, word)
            } else {
                format!("{} entries", text::count(count as u64))
            };
            let cure = format!("correct them ({cure}), or leave them out by `--on-bad skip`");
            Err(Error::Lines { path: src.to_path_buf(), count: count.into(), lines: lines.into(), cure: cure.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_parted() {
        let texts = |text: &str, separator| {
            let labels = parted(text, separator);
            labels.iter().map(|label| format!("{label:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(" cat ; dog|3;", None), "Field(\"cat\") Field(\"dog\") Field(\"3\")");
        assert_eq!(texts("cat;dog cow", Some(' ')), "Field(\"cat;dog\") Field(\"cow\")");
        assert_eq!((texts("", None), texts(" ; ", None)), (String::new(), String::new()));
    }
}

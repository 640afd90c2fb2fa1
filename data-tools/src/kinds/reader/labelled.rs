//! Images with labels listed in a table or JSON file. Decides which lines can be used and how to handle the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path};
use std::rc::Rc;

use base::text::{printable, with_advice};
use loaders::stall::during;
use loaders::{LabelKind, Limits, regular};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::files::{Listing, Place};
use super::labels::{Classes, Label};
use super::lines::{Line, LineContent, Lines, MAX_FIELD};
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::splits::{self, NameMatching, SplitAssigner, TRAIN, UnknownNames};
use crate::text;

/// The highest number of messages in an error.
const MAX_MESSAGES: usize = 1000;
/// Memory for the message about a line, in addition to its text.
const MESSAGE: u64 = 160;
/// Marks a position that is not set.
const NONE: u32 = u32::MAX;

/// Settings for checking the lines of a list.
pub(crate) struct List<'a> {
    /// The folder to which paths are relative.
    pub folder: &'a Path,
    pub classes: &'a Classes,
    /// The kind of label in the file.
    pub kind: LabelKind,
    /// True if a line may refer to a file outside the folder.
    pub allow_outside: bool,
}

/// Unusable lines. With [`OnBad::Skip`] all messages are kept, otherwise only the first [`MAX_MESSAGES`].
#[derive(Debug)]
pub(crate) struct BadLines {
    on_bad: OnBad,
    /// Line number, if there is one, and message.
    kept: Vec<(Option<u64>, String)>,
    /// Number of entries with a line number, and without.
    counts: [u64; 2],
}

impl BadLines {
    fn new(on_bad: OnBad) -> Self {
        BadLines { on_bad, kept: Vec::new(), counts: [0; 2] }
    }

    /// Adds a message. `line` is the line number, if there is one.
    pub(crate) fn push(&mut self, line: Option<u64>, what: String) {
        self.counts[usize::from(line.is_none())] += 1;
        if self.on_bad == OnBad::Skip || self.kept.len() < MAX_MESSAGES {
            self.kept.push((line, what));
        }
    }
}

/// The result of checking all lines.
pub(crate) struct CheckedList {
    /// The files of each split, with the split's name.
    pub found: Vec<(String, Listing)>,
    pub bad: BadLines,
    /// Number of lines that repeat an earlier line.
    pub repeats: u64,
    /// Total size of all files. A file that occurs repeatedly counts once.
    pub bytes: u64,
}

/// Replaces backslashes in Windows paths with slashes, unless a file has exactly that name.
pub(crate) fn use_slashes(folder: &Path, lines: &mut Lines) -> Result<(), Error> {
    lines.replace_paths(|path| (path.contains('\\') && !folder.join(path).exists()).then(|| path.replace('\\', "/")))
}

/// Replaces each line's split word with the split's name and removes lines whose split is to be skipped. Returns an
/// error if some words are known split names and others are not.
pub(crate) fn prepare(src: &Path, folder: &Path, lines: &mut Lines, options: &ConvertOptions) -> Result<(), Error> {
    use_slashes(folder, lines)?;
    lines.rename_splits(|word| Some(if word.is_empty() { TRAIN } else { word }.to_string()))?;
    let words: BTreeSet<&str> = lines.split_words().iter().map(String::as_str).filter(|word| is_name(word)).collect();
    let words: Vec<&str> = words.into_iter().collect();
    let assign = SplitAssigner { src, map: &options.split_map, names: NameMatching::Whole, unknown: UnknownNames::Own };
    let splits = assign.splits(&words)?;
    let splits: BTreeMap<String, Option<String>> = words.iter().map(|word| word.to_string()).zip(splits).collect();
    // A word that is not a valid split name is reported later as a fault of its line.
    lines.rename_splits(|word| splits.get(word).cloned().unwrap_or_else(|| Some(word.to_string())))
}

/// Creates the classes from the options, the source's list or the labels of the lines.
pub(crate) fn classes(
    src: &Path,
    lines: &Lines,
    several: bool,
    listed: Option<Vec<String>>,
    options: &ConvertOptions,
) -> Result<Classes, Error> {
    let labels = lines.pairs().flat_map(|(split, labels)| labels.iter().map(move |label| (split, label)));
    Classes::from_labels(src, options, listed, several, labels)
}

/// Splits the text of a column into labels at `separator`, or at `;` and `|` if `separator` is `None`.
pub(crate) fn split_labels(text: &str, separator: Option<char>) -> Vec<Label> {
    let parts = |c: char| separator.map_or([';', '|'].contains(&c), |separator| c == separator);
    text.split(parts).map(str::trim).filter(|label| !label.is_empty()).map(Label::from_field).collect()
}

impl List<'_> {
    /// Checks all lines and records the unusable ones. Returns an error if the messages use more memory than the limits
    /// allow.
    pub(crate) fn check_lines(&self, lines: &mut Lines, on_bad: OnBad) -> Result<CheckedList, Error> {
        let (mut found, mut bad, mut repeats, mut bytes) = (BTreeMap::new(), BadLines::new(on_bad), 0, 0);
        // `images` maps each line to the first line with the same image, and `firsts` maps that line to the first usable
        // line with the image.
        let images = first_of_image(lines);
        let mut firsts = vec![NONE; images.len()];
        let mut known = BTreeMap::new();
        for at in 0..images.len() {
            let line = &lines.all()[at];
            let first = &mut firsts[images[at] as usize];
            let usable = self.check_line(lines, line, lines.all().get(*first as usize), &mut known);
            let what = match usable {
                Ok(UsableLine { classes, length }) => {
                    match length {
                        Some(length) => bytes += length,
                        None => repeats += 1,
                    }
                    self.add(lines, line, &classes, &mut found);
                    if *first == NONE {
                        *first = at as u32;
                    }
                    continue;
                }
                Err(what) => what,
            };
            // With several labels per image, the first line of an image must list all of them. So later lines of the same
            // image are reported as repetitions even if the first line is unusable.
            if self.kind == LabelKind::Classes && *first == NONE {
                *first = at as u32;
            }
            let number = line.number;
            if on_bad == OnBad::Skip {
                lines.take(MESSAGE + 2 * what.len() as u64)?;
            }
            bad.push(Some(number), what);
        }
        let found = found.into_iter().map(|((_, split), listing)| (split, listing)).collect();
        Ok(CheckedList { found, bad, repeats, bytes })
    }

    /// Adds the image of a line to the listing of its split.
    fn add(&self, lines: &Lines, line: &Line, classes: &[u32], found: &mut BTreeMap<(u8, String), Listing>) {
        let split = lines.split_word(line);
        let listing = found.entry((splits::rank(split), split.to_string())).or_insert_with(|| {
            let mut listing = Listing::default();
            listing.place(Place::Folder(self.folder.to_path_buf()));
            listing
        });
        let path = lines.path(line);
        match self.kind {
            LabelKind::OneClass => listing.push(path, classes[0], (0, 0)),
            LabelKind::Classes => listing.push_set(path, classes, (0, 0)),
            LabelKind::Numbers => listing.push_numbers(path, lines.numbers(line), (0, 0)),
        }
    }

    /// Returns true if a path that is absolute or contains `..` resolves to a place outside the folder.
    fn leads_outside(&self, named: &Path) -> bool {
        let is_plain = named.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { self.folder };
        let is_inside = || Some(folder.join(named).canonicalize().ok()?.starts_with(folder.canonicalize().ok()?));
        !is_plain && !is_inside().unwrap_or(false)
    }

    /// Returns the classes of a line. Returns a message if the line is unusable or contradicts `first`, an earlier line
    /// with the same image.
    fn check_line(
        &self,
        lines: &Lines,
        line: &Line,
        first: Option<&Line>,
        known: &mut ClassCache,
    ) -> Result<UsableLine, String> {
        let Some(first) = first else { return self.check_file(lines, line, known) };
        let path = printable(lines.path(line));
        let number = first.number;
        if self.kind == LabelKind::Classes {
            return Err(format!("{path} is already on line {number}; list all its labels there"));
        }
        let classes = self.cached_classes(lines, line, known)?;
        let before = self.cached_classes(lines, first, known)?;
        if classes != before {
            let name = before.first().map_or("", |class| &self.classes.names[*class as usize]);
            let cure = "in a column named `labels`, an image may have several labels";
            return Err(format!("{path} is already on line {number} with the label `{}`; {cure}", printable(name)));
        }
        if lines.numbers(line) != lines.numbers(first) {
            return Err(format!(
                "{path} is already on line {number} with other numbers; list each image with one set of numbers"
            ));
        }
        if line.split != first.split {
            return Err(format!("{path} is already on line {number} in the split {}", lines.split_word(first)));
        }
        Ok(UsableLine { classes, length: None })
    }

    /// Returns the classes of a line and the size of its file, or a message if it is unusable.
    fn check_file(&self, lines: &Lines, line: &Line, known: &mut ClassCache) -> Result<UsableLine, String> {
        let classes = self.cached_classes(lines, line, known)?;
        let named = Path::new(lines.path(line));
        if !self.allow_outside && self.leads_outside(named) {
            let what = "the file is outside the image folder; --allow-outside accepts such files";
            return Err(format!("{}: {what}", named.display()));
        }
        let path = self.folder.join(named);
        match during("looking for", &path, || path.metadata()) {
            Ok(meta) if meta.is_file() => Ok(UsableLine { classes, length: Some(meta.len()) }),
            Ok(_) => Err(format!("{}: not a file", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(format!("{}: not found", path.display())),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    /// Returns the classes of a line, or a message if its content is invalid. The result is cached per split and set of
    /// labels.
    fn cached_classes(&self, lines: &Lines, line: &Line, known: &mut ClassCache) -> Result<Rc<[u32]>, String> {
        if let Some(fault) = lines.line_fault(line) {
            return Err(fault.to_string());
        }
        let labels = lines.labels(line);
        let no_path = lines.path(line).is_empty();
        if no_path || (labels.is_empty() && self.kind == LabelKind::OneClass) {
            return Err(format!("it has no {}", if no_path { "path" } else { "label" }));
        }
        let answer = known.entry((line.split, line.labels)).or_insert_with(|| {
            let split = split(lines.split_word(line))?;
            Ok(self.classes_of(split, labels)?.into())
        });
        answer.clone()
    }

    /// Converts labels to classes. The message lists all problems.
    fn classes_of(&self, split: &str, labels: &[Label]) -> Result<Vec<u32>, String> {
        let (mut classes, mut wrong) = (BTreeSet::new(), Vec::new());
        for label in labels {
            match self.classes.class_in_split(split, label) {
                Err(what) => wrong.push(what),
                Ok(class) if !classes.insert(class) => {
                    wrong.push(format!("the label `{}` occurs twice", printable(&self.classes.names[class as usize])));
                }
                Ok(_) => {}
            }
        }
        let wrong = wrong.into_iter().reduce(|all, next| with_advice(&all, &next));
        wrong.map_or_else(|| Ok(classes.into_iter().collect()), Err)
    }
}

/// Classes that were looked up before, by split number and label number.
type ClassCache = BTreeMap<(u32, u32), Result<Rc<[u32]>, String>>;

struct UsableLine {
    classes: Rc<[u32]>,
    /// Size of the image file. `None` if an earlier line has the same image, so that a file counts once.
    length: Option<u64>,
}

/// Returns for each line the position of the first line with the same image.
fn first_of_image(lines: &Lines) -> Vec<u32> {
    let mut firsts = vec![0; lines.all().len()];
    let mut first: Option<u32> = None;
    for at in lines.by_image() {
        let image = |at: u32| lines.image(&lines.all()[at as usize]);
        first = first.filter(|&first| image(first) == image(at)).or(Some(at));
        firsts[at as usize] = first.unwrap_or(at);
    }
    firsts
}

/// Returns the line's split if it is a valid name.
fn split(word: &str) -> Result<&str, String> {
    match is_name(word) {
        true => Ok(word),
        false => Err(format!(
            "split `{}`: expected a name of letters, digits, _ and - with at least one letter, such as train, validation or test",
            printable(word)
        )),
    }
}

/// Returns true if a word is a valid split name.
fn is_name(word: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    word.chars().all(fits) && word.bytes().any(|b| b.is_ascii_alphabetic())
}

/// Returns messages for all unusable lines in the list `src`, or an error that contains them. `cure` tells the user how to fix them.
pub(crate) fn check(src: &Path, bad: BadLines, cure: &str) -> Result<Vec<String>, Error> {
    let BadLines { on_bad, kept, counts: [lines, others] } = bad;
    let kept_count = kept.len() as u64;
    let messages = kept.into_iter().map(|(line, what)| match line {
        Some(line) => format!("line {line}: {}", printable(&what)),
        None => printable(&what).into_owned(),
    });
    if lines + others == 0 {
        return Ok(Vec::new());
    }
    if on_bad == OnBad::Skip {
        let name = src.to_string_lossy();
        return Ok(messages.map(|line| format!("{}: {line}", printable(&name))).collect());
    }
    let count = match (lines, others) {
        (lines, 0) => text::plural(lines, "line"),
        (0, 1) => text::plural(1, "entry"),
        _ => format!("{} entries", text::count(lines + others)),
    };
    let more = lines + others - kept_count;
    let more = (more > 0).then(|| format!("and {} more", text::count(more)));
    let lines = messages.chain(more).collect();
    let cure = format!("correct them ({cure}), or leave them out with `--on-bad skip`");
    Err(Error::Lines { path: src.to_path_buf(), count: count.into(), lines, cure: cure.into() })
}

/// Parses a JSON object and adds each member to the lines, including repeated keys.
struct Members<'a> {
    text: &'a str,
    lines: &'a mut Lines,
    /// Receives an error of `lines`, because the error type of the JSON parser can only hold a text.
    failed: &'a mut Option<Error>,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an object with a list of classes for each image, such as {\"a.jpg\": [\"cat\", \"dog\"], \"b.jpg\": []}",
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Members { text, lines, failed } = self;
        let (mut number, mut at) = (1, 0);
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            // Each value is a slice of the text, in order, so its address gives its position.
            let here = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
            number += text.as_bytes()[at.min(here)..here].iter().filter(|byte| **byte == b'\n').count() as u64;
            at = here;
            let labels = labels(value.get());
            let fault = labels.as_ref().err().cloned();
            let labels = labels.unwrap_or_default();
            if let Err(error) = lines.push(LineContent { number, path: &name, labels, numbers: &[], split: "", fault })
            {
                let message = error.to_string();
                *failed = Some(error);
                return Err(serde::de::Error::custom(message));
            }
        }
        Ok(())
    }
}

/// Reads the JSON file at `path`. An image may have any number of labels. A value that is not a list of labels becomes
/// a fault of its line. Returns an error if the file cannot be read, is not a JSON object, or needs more memory than
/// the limits allow.
pub(crate) fn read(path: &Path, limits: Limits) -> Result<Lines, Error> {
    let text = regular::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let text = text::without_mark(&text);
    let (mut lines, mut failed) = (Lines::new(path, text.len(), limits), None);
    let mut parser = serde_json::Deserializer::from_str(text);
    let members = Members { text, lines: &mut lines, failed: &mut failed };
    match members.deserialize(&mut parser).and_then(|()| parser.end()) {
        Ok(()) => Ok(lines),
        Err(e) => Err(failed.unwrap_or_else(|| Error::input(path, e.to_string()))),
    }
}

/// Parses the labels in a JSON value.
fn labels(text: &str) -> Result<Vec<Label>, String> {
    if text.len() > MAX_FIELD {
        return Err(format!("a list of {} bytes; expected at most {MAX_FIELD}", text.len()));
    }
    let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    let label = |value: &Value| {
        Label::from_json(value)
            .ok_or_else(|| format!("{value}: expected a list of class names or numbers, such as [\"cat\", \"dog\"]"))
    };
    list.iter().map(label).collect()
}

#[derive(Debug)]
pub(crate) struct SkippedSamples {
    on_bad: OnBad,
    /// A message for each skipped sample.
    pub lines: Vec<String>,
}

impl SkippedSamples {
    pub(crate) fn new(on_bad: OnBad) -> Self {
        SkippedSamples { on_bad, lines: Vec::new() }
    }

    /// Records a sample in `path` as skipped. `what` identifies the sample and describes the problem. With
    /// [`OnBad::Fail`], returns an error for this sample instead.
    pub(crate) fn add(&mut self, path: &Path, what: &str) -> Result<(), Error> {
        if self.on_bad == OnBad::Fail {
            return Err(Error::input(path, with_advice(what, "leave such images out with `--on-bad skip`")));
        }
        self.lines.push(format!("{}: {what}", path.display()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::program::Folder;

    #[test]
    fn labels_are_split_at_separators() {
        let texts = |text: &str, separator| {
            let labels = split_labels(text, separator);
            labels.iter().map(|label| format!("{label:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(" cat ; dog|3;", None), "Field(\"cat\") Field(\"dog\") Field(\"3\")");
        assert_eq!(texts("cat;dog cow", Some(' ')), "Field(\"cat;dog\") Field(\"cow\")");
        assert_eq!((texts("", None), texts(" ; ", None)), (String::new(), String::new()));
    }

    /// Line number, image, labels and fault of a line.
    type Row = (u64, String, Vec<Label>, Option<String>);

    fn of(text: &str) -> Result<Vec<Row>, String> {
        let folder = Folder::new();
        let path = folder.write("labels.json", text);
        let lines = read(Path::new(&path), Limits::DEFAULT).map_err(|e| e.to_string())?;
        let content = |line: &Line| {
            let fault = lines.line_fault(line).map(str::to_string);
            (line.number, lines.path(line).to_string(), lines.labels(line).to_vec(), fault)
        };
        Ok(lines.all().iter().map(content).collect())
    }

    #[test]
    fn members_keep_their_line_numbers() {
        let text = "{\"a.jpg\": [\"cat\", 2],\n\n \"b.jpg\":\n[],\n\"a.jpg\": \"dog\",\n\"c.jpg\": [true]}";
        let lines = of(text).unwrap();
        let name = |text: &str| Label::Name(text.into());
        let numbers: Vec<u64> = lines.iter().map(|line| line.0).collect();
        assert_eq!(numbers, [1, 4, 5, 6]);
        assert_eq!((lines[0].1.as_str(), &lines[0].2), ("a.jpg", &vec![name("cat"), Label::Number(2)]));
        assert_eq!((lines[1].2.len(), lines[1].3.is_none()), (0, true));
        assert_eq!(lines[2].2, [name("dog")]);
        assert!(lines[3].3.as_ref().unwrap().contains("true: "));
        assert_eq!(of("{}").unwrap(), []);
        let lines = of("\u{feff}{\n\"a.jpg\": \"dog\"}").unwrap();
        assert_eq!((lines[0].0, lines[0].2.as_slice()), (2, [name("dog")].as_slice()));
    }

    #[test]
    fn other_json_than_an_object_is_refused() {
        assert!(of("[1, 2]").unwrap_err().contains("an object"));
        assert!(of("{\"a\": [}").unwrap_err().contains("line 1"));
    }
}

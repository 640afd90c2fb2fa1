//! WebDataset: tar archives in which consecutive members with the same key form a sample, such as `KEY.jpg` and
//! `KEY.cls` or `KEY.json`.
//!
//! SRC is one archive or a folder of archives. `train-*.tar`, `val-*.tar` and `test-*.tar`, or folders with these
//! names, are splits. Archives are read in place. Labels are numbers or names. Names for label numbers come from
//! `--classes`, or from a `classes.txt` next to the archives. With `--targets`, `KEY.json` contains a number for each target.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::text::printable;

use super::reader::files::{FileSplits, Files, Listing, Place};
use super::reader::folders::is_picture;
use super::reader::input::{Budget, Content, open_sized};
use super::reader::labelled::SkippedSamples;
use super::reader::labels::{Classes, Label, NamedClasses, NumberNames};
use super::reader::table::target;
use super::reader::{archive, names};
use super::{Kind, Open, Opened};
use crate::dir::{Entry, entries};
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::text::{first, without_mark};
use crate::{pool, splits, text};

pub(super) const WEBDATASET: Kind = Kind {
    name: "webdataset",
    about: "tar archives with KEY.jpg and KEY.cls or KEY.json: one archive, or a folder with train-*.tar and val-*.tar",
    open: Open::Files(open),
};

const HINT: &str = "expected a tar archive, or a folder of archives: train-000000.tar, val-000000.tar, ...";
/// The highest number of archives that are kept open.
const MAX_OPEN: usize = 256;

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let archives = find(src, options)?;
    // Missing archives are reported later, when they are read.
    let sizes = archives.iter().filter_map(|(_, path)| path.metadata().ok()).map(|meta| meta.len());
    let memory = Mutex::new(Budget::of(Content::Samples, options.limits, sizes.sum()));
    let mut packed = pool::run(archives.len(), options.jobs, |i| read(&archives[i].1, &options.targets, &memory))?;
    let mut skipped = check(&archives, &packed, options)?;
    let listed = names::beside(src)?;
    let names = names(src, &archives, &packed)?;
    let labels = packed.iter_mut().flat_map(|packed| &mut packed.samples).flat_map(|sample| &mut sample.label.labels);
    let NamedClasses { list: listed, notes } = names.apply(src, options, listed, labels)?;
    if listed.is_some() || options.classes.is_some() {
        name_by_text(&mut packed);
    }
    let samples =
        || archives.iter().zip(&packed).flat_map(|((split, _), p)| p.samples.iter().map(move |s| (split.as_str(), s)));
    let labels = samples().flat_map(|(split, sample)| sample.label.labels.iter().map(move |label| (split, label)));
    let several = samples().any(|(_, sample)| sample.label.is_list);
    let classes = Classes::from_labels(src, options, listed, several, labels)?;
    let (found, unusable) = list(&archives, packed, &classes, several, options)?;
    skipped.extend(unusable);
    Ok(Box::new(Files::new(src, classes.names, found, notes, options)?.with_skipped(skipped)))
}

/// Collects the class name for each label number in the samples.
fn names(src: &Path, archives: &[(String, PathBuf)], packed: &[ArchiveSamples]) -> Result<NumberNames, Error> {
    let mut names = NumberNames::default();
    for ((_, path), packed) in archives.iter().zip(packed) {
        for TarSample { name: member, label, .. } in &packed.samples {
            for (number, name) in &label.names {
                names.note(src, *number, name, || format!("{member} of {}", path.display()))?;
            }
        }
    }
    Ok(names)
}

/// Treats all labels outside lists as names if at least one of them is a name, because a class name may look like a
/// number, for example `5`.
fn name_by_text(packed: &mut [ArchiveSamples]) {
    let alone = |packed: &mut [ArchiveSamples], each: &mut dyn FnMut(&mut Label)| {
        let samples = packed.iter_mut().flat_map(|packed| &mut packed.samples).filter(|sample| !sample.label.is_list);
        samples.flat_map(|sample| &mut sample.label.labels).for_each(each);
    };
    let mut named = false;
    alone(packed, &mut |label| named |= matches!(label, Label::Name(_)));
    if named {
        alone(packed, &mut Label::make_name);
    }
}

/// With [`OnBad::Skip`], returns a message for each unusable sample. With [`OnBad::Fail`], returns an error for the
/// first unusable sample.
fn check(
    archives: &[(String, PathBuf)],
    packed: &[ArchiveSamples],
    options: &ConvertOptions,
) -> Result<Vec<String>, Error> {
    let each =
        || archives.iter().zip(packed).flat_map(|((_, path), packed)| packed.faults.iter().map(move |f| (path, f)));
    match each().next() {
        Some((path, fault)) if options.on_bad == OnBad::Fail => {
            let more = match each().count() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            let what = format!("{fault}{more}; pack the archive again, or leave such samples out with `--on-bad skip`");
            Err(Error::input(path, what))
        }
        _ => Ok(each().map(|(path, fault)| format!("{}: {fault}", path.display())).collect()),
    }
}

/// Finds a source's archives and their splits, sorted by split and name.
fn find(src: &Path, options: &ConvertOptions) -> Result<Vec<(String, PathBuf)>, Error> {
    let found = FileSplits { src, ending: ".tar", plain_folders: &[], options }.find(HINT)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let endings = [".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"];
    let is_packed = |entry: &Entry| !entry.is_dir && endings.iter().any(|end| entry.name.ends_with(end));
    if let Some(Entry { name, .. }) = entries(src)?.into_iter().find(is_packed) {
        let what = "the archive is compressed, but archives are read in place; unpack it first (`gzip -d`, `zstd -d`)";
        return Err(Error::input(&src.join(name), what));
    }
    Err(Error::missing(src.join("train-000000.tar"), HINT))
}

/// The samples of each split, with the split's name.
type NamedListings = Vec<(String, Listing)>;

/// Lists each split's samples, and the skipped samples. With `several`, an image may have any number of labels.
fn list(
    archives: &[(String, PathBuf)],
    packed: Vec<ArchiveSamples>,
    classes: &Classes,
    several: bool,
    options: &ConvertOptions,
) -> Result<(NamedListings, Vec<String>), Error> {
    let held = archives.len() <= MAX_OPEN;
    let mut found: BTreeMap<(u8, &str), Listing> = BTreeMap::new();
    let mut unusable = SkippedSamples::new(options.on_bad);
    for ((split, path), ArchiveSamples { file, samples, .. }) in archives.iter().zip(packed) {
        let listing = found.entry((splits::rank(split), split)).or_default();
        let file: Option<Arc<File>> = held.then(|| Arc::new(file));
        listing.place(Place::Archive { path: path.clone(), file });
        for sample in samples {
            let own = sample.label.labels.iter().map(|label| classes.class_in_split(split, label));
            let range = (sample.range.start, sample.range.end - sample.range.start);
            match own.collect::<Result<Vec<u32>, String>>() {
                Err(what) => unusable.add(path, &format!("{}: {what}", base::text::printable(&sample.name)))?,
                Ok(_) if !options.targets.is_empty() => {
                    listing.push_numbers(&sample.name, &sample.label.numbers, range);
                }
                Ok(own) if several => listing.push_set(&sample.name, &own, range),
                Ok(own) => listing.push(&sample.name, own[0], range),
            }
        }
    }
    let found: Vec<(String, Listing)> = found.into_iter().map(|((_, split), l)| (split.to_string(), l)).collect();
    match found.iter().find(|(_, listing)| listing.len() == 0) {
        Some((split, _)) if unusable.lines.is_empty() => {
            let first = archives.iter().find(|(of, _)| of == split).map_or(&archives[0].1, |(_, path)| path);
            Err(Error::input(first, format!("split {split} contains no sample{}; {HINT}", described_endings(first)?)))
        }
        _ => Ok((found, unusable.lines)),
    }
}

/// Describes the member endings in an archive without samples.
fn described_endings(path: &Path) -> Result<String, Error> {
    let found = member_endings(path)?;
    Ok(match found.is_empty() {
        true => String::new(),
        false => format!(": its members end in {}, not in .jpg (or .png, ...) and .cls or .json", text::first(&found)),
    })
}

/// The size limit for a label or JSON member in bytes.
const MOST: u64 = 1 << 20;
/// Memory overhead of a label in addition to its text, and of a sample in addition to its labels and name.
const LABEL: usize = 64;
/// Maximum number of bytes of a wrong value that a message shows.
const MOST_SHOWN: usize = 60;
const SAMPLE: u64 = 200;
/// Keys of a JSON object that may contain a label. The first existing key counts.
const KEYS: [&str; 5] = ["label", "cls", "class", "class_id", "class_name"];

/// JSON keys for the class name that accompanies a label number.
const NAMES: [&str; 3] = ["class_name", "label_name", "label_text"];

/// JSON keys for a list of labels and a list of their names.
const LIST: &str = "labels";
const LIST_NAMES: &str = "class_names";

/// An archive's samples, with messages about unusable ones.
struct ArchiveSamples {
    pub file: File,
    pub samples: Vec<TarSample>,
    /// A message for each unusable sample.
    pub faults: Vec<String>,
}

#[derive(Debug, Default)]
struct TarLabels {
    pub labels: Vec<Label>,
    /// The class names that the sample assigns to label numbers.
    pub names: Vec<(i64, String)>,
    /// True if the labels come from a list, which may have any length.
    pub is_list: bool,
    /// A number for each target. Empty without targets.
    pub numbers: Vec<f32>,
}

struct TarSample {
    /// Name of the member with the image.
    pub name: String,
    pub label: TarLabels,
    /// Position of the image in the archive.
    pub range: Range<u64>,
}

impl TarSample {
    /// Estimates the memory that the sample needs until the classes are known. Each label counts eight times, because
    /// most classes occur only once.
    fn bytes(&self) -> u64 {
        let labels = self.label.labels.iter().map(|label| LABEL + 8 * label.bytes());
        let names = self.label.names.iter().map(|(_, name)| LABEL + 4 * name.len());
        let numbers = 2 * size_of_val(self.label.numbers.as_slice());
        (3 * self.name.len() + numbers + labels.chain(names).sum::<usize>()) as u64 + SAMPLE
    }
}

/// Reads the members' headers and the labels of the archive at `path`, or the numbers of `targets` if there are any.
/// Returns an error if the file is not a tar archive or truncated, if the members of a sample are not consecutive, or
/// if the labels exceed the memory limit.
fn read(path: &Path, targets: &[String], memory: &Mutex<Budget>) -> Result<ArchiveSamples, Error> {
    let (file, length) = open_sized(path)?;
    let mut reader = Reader {
        path,
        targets,
        memory,
        file: &file,
        group: Group::default(),
        members: 0,
        seen: BTreeSet::new(),
        samples: vec![],
        faults: vec![],
    };
    archive::walk(&file, path, 0..length, |name, range| reader.member(&name.to_string_lossy(), range))?;
    reader.finish_sample()?;
    let Reader { samples, faults, .. } = reader;
    Ok(ArchiveSamples { samples, faults, file })
}

/// The members with the current key.
#[derive(Default)]
struct Group {
    key: String,
    /// Number of its first member in the archive, counted from 1, and the offset of its content.
    first: u64,
    start: u64,
    endings: BTreeSet<String>,
    image: Option<(String, Range<u64>)>,
    label: Option<TarLabels>,
    /// The class names in the JSON. An entry without a number names the sample's label.
    names: Vec<(Option<i64>, String)>,
    /// The problem with the JSON, if it was expected to contain the label.
    json: Option<String>,
    fault: Option<String>,
}

struct Reader<'a> {
    path: &'a Path,
    /// Names of the numbers to read. If empty, samples have labels.
    targets: &'a [String],
    /// The memory for the samples of all archives, which other threads read at the same time.
    memory: &'a Mutex<Budget>,
    file: &'a File,
    group: Group,
    members: u64,
    /// Keys of completed samples. They must not occur again.
    seen: BTreeSet<String>,
    samples: Vec<TarSample>,
    faults: Vec<String>,
}

/// Splits a member's name at the first dot after its last slash. Returns the key and the ending in lower case.
fn split_name(name: &str) -> Option<(&str, String)> {
    let base = name.rfind('/').map_or(0, |at| at + 1);
    let dot = base + name[base..].find('.')?;
    let is_meta = name[base..].starts_with("__") && name[base..].ends_with("__");
    (dot > base && !is_meta).then(|| (&name[..dot], name[dot + 1..].to_lowercase()))
}

impl Reader<'_> {
    fn member(&mut self, name: &str, range: Range<u64>) -> Result<(), Error> {
        self.members += 1;
        let Some((key, ending)) = split_name(name) else { return Ok(()) };
        if key != self.group.key || self.group.endings.is_empty() {
            self.finish_sample()?;
            if self.seen.contains(key) {
                return Err(self.out_of_order(name, &range));
            }
            self.group = Group { key: key.to_string(), first: self.members, start: range.start, ..Group::default() };
        }
        if !self.group.endings.insert(ending.clone()) {
            self.group.fault = Some(format!("contains {} twice", printable(name)));
        }
        if ending == "npy" {
            // If the sample has a picture, an array is not the image. It may contain features.
            self.group.image.get_or_insert((name.to_string(), range));
        } else if is_picture(&format!("x.{ending}")) && !ending.contains('.') {
            if let Some((first, _)) = &self.group.image
                && is_picture(first)
            {
                self.group.fault = Some(format!("contains two images, {} and {}", printable(first), printable(name)));
            }
            self.group.image = Some((name.to_string(), range));
        } else if ending == "json" && !self.targets.is_empty() {
            match self.text(range)?.and_then(|text| numbers(&text, self.targets)) {
                Ok(numbers) => self.group.label = Some(TarLabels { numbers, ..TarLabels::default() }),
                Err(what) => self.group.fault = Some(format!("{}: {what}", printable(name))),
            }
        } else if !self.targets.is_empty() {
            // Members with classes are not needed.
        } else if ending == "cls" {
            match self.text(range)?.and_then(|text| class(&text)) {
                Ok(label) => self.group.label = Some(single_label(label)),
                Err(what) => self.group.fault = Some(format!("{}: {what}", printable(name))),
            }
        } else if ending == "json" {
            match self.text(range)?.and_then(|text| json(&text)) {
                Ok(Json { label, names }) => {
                    self.group.names = names;
                    self.group.label = self.group.label.take().or(Some(label));
                }
                // Not an error yet: a following member may contain the label.
                Err(what) => self.group.json = Some(format!("{}: {what}", printable(name))),
            }
        }
        Ok(())
    }

    /// Counts memory against the archives' budget.
    fn take(&self, bytes: u64) -> Result<(), Error> {
        pool::lock(self.memory).take(self.path, bytes)
    }

    /// Reads a member's text. The inner error describes invalid text.
    fn text(&self, range: Range<u64>) -> Result<Result<String, String>, Error> {
        let length = range.end - range.start;
        if length > MOST {
            return Ok(Err(format!("a label of {length} bytes; expected at most {MOST} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, range.start).map_err(|e| Error::io("read", self.path, e))?;
        Ok(String::from_utf8(bytes).map(|text| without_mark(&text).to_string()).map_err(|_| "not UTF-8".into()))
    }

    fn finish_sample(&mut self) -> Result<(), Error> {
        let group = std::mem::take(&mut self.group);
        if group.endings.is_empty() {
            return Ok(());
        }
        let fault = match (group.fault, group.image, group.label) {
            (Some(fault), ..) => fault,
            // Samples without image and label are ignored, for example a description of the archive.
            (None, None, None) => String::new(),
            (None, None, Some(_)) => "has a label but no image".into(),
            (None, Some((name, _)), None) if !self.targets.is_empty() => format!(
                "has no numbers: expected {0}.json with {1} next to {2}",
                printable(&group.key),
                named(self.targets),
                printable(&name)
            ),
            (None, Some((name, _)), None) => {
                let found: Vec<&String> = group.endings.iter().collect();
                format!(
                    "has no label: expected {0}.cls, or {0}.json with `label`, next to {1}; {2}",
                    printable(&group.key),
                    printable(&name),
                    group.json.unwrap_or_else(|| format!("the extensions of its members are {}", first(&found)))
                )
            }
            (None, Some((name, range)), Some(mut label)) => {
                label.names = pair_names(&label, group.names);
                let sample = TarSample { name, label, range };
                self.take(sample.bytes())?;
                self.samples.push(sample);
                String::new()
            }
        };
        if !fault.is_empty() {
            let (key, first, start) = (printable(&group.key), group.first, group.start);
            let fault = format!("sample `{key}` (member {first} at byte {start}) {fault}");
            self.take(2 * fault.len() as u64)?;
            self.faults.push(fault);
        }
        self.seen.insert(group.key);
        Ok(())
    }

    /// Returns the error for a member of an earlier sample that is not next to its other members.
    fn out_of_order(&self, name: &str, range: &Range<u64>) -> Error {
        let what = format!(
            "member {} at byte {}, {}, is separated from the other members of its sample, which must follow each other; pack the \
             archive again in order (tar --sort=name)",
            self.members,
            range.start,
            printable(name)
        );
        Error::input(self.path, what)
    }
}

/// Parses a `.cls` member, which contains only the label.
fn class(text: &str) -> Result<Label, String> {
    if text.trim().is_empty() { Err("the file is empty, expected a label".into()) } else { Ok(Label::from_file(text)) }
}

struct Json {
    label: TarLabels,
    /// Class names by label number. An entry without a number names the sample's label.
    names: Vec<(Option<i64>, String)>,
}

fn json(text: &str) -> Result<Json, String> {
    let object: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("not valid JSON ({e})"))?;
    let value = |key: &&'static str| Some((*key, object.get(*key).filter(|value| !value.is_null())?));
    let found = KEYS.iter().find_map(value);
    if let Some((key, value)) = found {
        let wrong = || format!("`{key}` is {value}; expected an integer or a name");
        let label = Label::from_json(value).ok_or_else(wrong)?;
        let name = NAMES.iter().filter(|name| **name != key).find_map(|name| object.get(name)?.as_str());
        let number = if let Label::Number(number) = &label { Some(*number) } else { None };
        let names = name.map(|name| (number, name.to_string())).into_iter().collect();
        return Ok(Json { label: single_label(label), names });
    }
    let list = || object.get(LIST)?.as_array()?.iter().map(Label::from_json).collect::<Option<Vec<Label>>>();
    let labels = list().ok_or_else(|| format!("it has none of the keys {}", KEYS.join(", ")))?;
    let texts: Vec<&str> = object
        .get(LIST_NAMES)
        .and_then(|names| names.as_array())
        .map_or_else(Vec::new, |names| names.iter().filter_map(|name| name.as_str()).collect());
    let pairs = labels.iter().zip(&texts).filter(|_| labels.len() == texts.len());
    let names = pairs.filter_map(|(label, name)| match label {
        Label::Number(number) => Some((Some(*number), name.to_string())),
        _ => None,
    });
    let names = names.collect();
    Ok(Json { label: TarLabels { labels, is_list: true, ..TarLabels::default() }, names })
}

/// Reads numbers from a `.json` member. The keys are in its object or, as `trireme data export webdataset` writes them, in
/// the object `targets` inside it.
fn numbers(text: &str, targets: &[String]) -> Result<Vec<f32>, String> {
    let object: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("not valid JSON ({e})"))?;
    let find = |name: &String| object.get(name).or_else(|| object.get("targets")?.get(name));
    let number = |name: &String| match find(name).map(|value| (value, value.as_f64())) {
        Some((_, Some(number))) => target(number).map_err(|what| format!("`{}`: {what}", printable(name))),
        Some((value, None)) => {
            let value: String = value.to_string().chars().take(MOST_SHOWN).collect();
            Err(format!("`{}` is {}; expected a number", printable(name), printable(&value)))
        }
        None => Err(format!("it has no key `{}` (--targets)", printable(name))),
    };
    targets.iter().map(number).collect()
}

fn named(names: &[String]) -> String {
    names.iter().map(|name| format!("`{}`", printable(name))).collect::<Vec<_>>().join(", ")
}

fn single_label(label: Label) -> TarLabels {
    TarLabels { labels: vec![label], ..TarLabels::default() }
}

/// Pairs numbers with names. A name without a number belongs to the sample's only label.
fn pair_names(label: &TarLabels, names: Vec<(Option<i64>, String)>) -> Vec<(i64, String)> {
    let own = match label.labels.as_slice() {
        [Label::Number(number)] if !label.is_list => Some(*number),
        _ => None,
    };
    names.into_iter().filter_map(|(number, name)| Some((number.or(own)?, name))).collect()
}

/// Returns the file endings of keyed members in an archive, most frequent first.
fn member_endings(path: &Path) -> Result<Vec<String>, Error> {
    let (file, length) = open_sized(path)?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    archive::walk(&file, path, 0..length, |name, _| {
        if let Some((_, ending)) = split_name(&name.to_string_lossy()) {
            *counts.entry(format!(".{ending}")).or_default() += 1;
        }
        Ok(())
    })?;
    let mut endings: Vec<(String, u64)> = counts.into_iter().collect();
    endings.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(endings.into_iter().map(|(ending, _)| ending).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_at_the_first_dot_of_the_last_part() {
        let split = |name| split_name(name).map(|(key, ending)| format!("{key}|{ending}"));
        let is = |text: &str| Some(text.to_string());
        assert_eq!(split("a/b.c/000.seg.PNG"), is("a/b.c/000|seg.png"));
        assert_eq!(split("000.jpg"), is("000|jpg"));
        assert_eq!(
            [split("a/.hidden"), split("README"), split("__index__.json"), split("x/__a.b__")],
            [None, None, is("__index__|json"), None]
        );
    }
}

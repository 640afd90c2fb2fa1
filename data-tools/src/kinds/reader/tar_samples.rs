//! The samples of a WebDataset archive: the consecutive members of one key, an image and its label.

use super::folders::is_image;
use super::labels::Label;
use super::tar_index;
use crate::error::Error;
use crate::text::without_mark;
use loaders::{printable, regular};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The largest label or JSON that is read.
const MOST: u64 = 1 << 20;
/// Keys of a JSON object that hold a label, the first that is there counts.
const KEYS: [&str; 5] = ["label", "cls", "class", "class_id", "class_name"];

/// The key of a JSON object that holds a list of labels.
const LIST: &str = "labels";

/// A sample of an archive.
pub(crate) struct Packed {
    /// The archive.
    pub file: File,
    pub samples: Vec<TarSample>,
    /// What is wrong with the samples that are left out.
    pub faults: Vec<String>,
}

/// What a sample says of its classes.
#[derive(Debug)]
pub(crate) struct TarLabels {
    pub labels: Vec<Label>,
    /// Whether they stand in a list, which may hold several, or none.
    pub is_list: bool,
}

/// An image and its label.
pub(crate) struct TarSample {
    /// The name of the image's member.
    pub name: String,
    pub label: TarLabels,
    /// Where its bytes are.
    pub range: Range<u64>,
}

/// Reads the members' headers, and the labels, of the archive at `path`.
///
/// # Errors
/// A file that is no tar archive or cut short; members of a sample that are apart from each other.
pub(crate) fn read(path: &Path) -> Result<Packed, Error> {
    let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
    let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
    let mut reader = Reader {
        path,
        file: &file,
        group: Group::default(),
        members: 0,
        seen: BTreeSet::new(),
        samples: vec![],
        faults: vec![],
    };
    tar_index::walk(&file, path, 0..length, |name, range| reader.member(&name.to_string_lossy(), range))?;
    reader.end();
    let Reader { samples, faults, .. } = reader;
    Ok(Packed { samples, faults, file })
}

/// The members of the key at work.
#[derive(Default)]
struct Group {
    key: String,
    /// Number of its first member in the archive, from 1, and where that begins.
    first: u64,
    start: u64,
    endings: BTreeSet<String>,
    image: Option<(String, Range<u64>)>,
    label: Option<TarLabels>,
    fault: Option<String>,
}

struct Reader<'a> {
    path: &'a Path,
    file: &'a File,
    group: Group,
    members: u64,
    /// Keys that are over.
    seen: BTreeSet<String>,
    samples: Vec<TarSample>,
    faults: Vec<String>,
}

/// A member's name up to the first dot behind its last slash, and the rest in lower case.
fn split_name(name: &str) -> Option<(&str, String)> {
    let base = name.rfind('/').map_or(0, |at| at + 1);
    let dot = base + name[base..].find('.')?;
    let is_meta = name[base..].starts_with("__") && name[base..].ends_with("__");
    (dot > base && !is_meta).then(|| (&name[..dot], name[dot + 1..].to_lowercase()))
}

impl Reader<'_> {
    /// Takes the next member.
    fn member(&mut self, name: &str, range: Range<u64>) -> Result<(), Error> {
        self.members += 1;
        let Some((key, ending)) = split_name(name) else { return Ok(()) };
        if key != self.group.key || self.group.endings.is_empty() {
            self.end();
            if self.seen.contains(key) {
                return Err(self.apart(name, &range));
            }
            self.group = Group { key: key.to_string(), first: self.members, start: range.start, ..Group::default() };
        }
        if !self.group.endings.insert(ending.clone()) {
            self.group.fault = Some(format!("holds {} twice", printable(name)));
        }
        if is_image(&format!("x.{ending}")) && !ending.contains('.') {
            if let Some((first, _)) = &self.group.image {
                self.group.fault = Some(format!("holds two images, {} and {}", printable(first), printable(name)));
            }
            self.group.image = Some((name.to_string(), range));
        } else if ending == "cls" || (ending == "json" && self.group.label.is_none()) {
            match self.label(&ending, range)? {
                Ok(label) => self.group.label = Some(label),
                Err(what) if ending == "cls" => self.group.fault = Some(format!("{}: {what}", printable(name))),
                // its label may be in a member that follows
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// The label in a member; or what is wrong with it.
    fn label(&self, ending: &str, range: Range<u64>) -> Result<Result<TarLabels, String>, Error> {
        let length = range.end - range.start;
        if length > MOST {
            return Ok(Err(format!("{length} bytes are too many for a label")));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, range.start).map_err(|e| Error::io("read", self.path, e))?;
        let Ok(text) = std::str::from_utf8(&bytes) else { return Ok(Err("its label is not UTF-8".into())) };
        let text = without_mark(text);
        if ending == "cls" {
            return Ok(if text.trim().is_empty() { Err("it is empty".into()) } else { Ok(one(Label::of_file(text))) });
        }
        let object: Result<serde_json::Value, _> = serde_json::from_str(text);
        let value = object.map_err(|e| e.to_string());
        Ok(value.and_then(|object| {
            let found = KEYS.iter().find_map(|key| object.get(key)).and_then(Label::of_json);
            let list = || object.get(LIST)?.as_array()?.iter().map(Label::of_json).collect::<Option<Vec<Label>>>();
            let labels = found.map(one).or_else(|| Some(TarLabels { labels: list()?, is_list: true }));
            labels.ok_or_else(|| format!("it has no {}", KEYS.join(", ")))
        }))
    }

    /// Ends the sample at work.
    fn end(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group.endings.is_empty() {
            return;
        }
        let fault = match (group.fault, group.image, group.label) {
            (Some(fault), ..) => fault,
            // a sample of something else, such as a description of the archive
            (None, None, None) => String::new(),
            (None, None, Some(_)) => "has a label and no image".into(),
            (None, Some((name, _)), None) => {
                format!(
                    "has no label: expected {0}.cls, or {0}.json with `label`, beside {1}",
                    group.key,
                    printable(&name)
                )
            }
            (None, Some((name, range)), Some(label)) => {
                self.samples.push(TarSample { name, label, range });
                String::new()
            }
        };
        if !fault.is_empty() {
            let (key, first, start) = (printable(&group.key), group.first, group.start);
            self.faults.push(format!("sample `{key}` (member {first} at byte {start}) {fault}"));
        }
        self.seen.insert(group.key);
    }

    /// The error of a member that comes after those of other keys.
    fn apart(&self, name: &str, range: &Range<u64>) -> Error {
        let what = format!(
            "member {} at byte {}, {}, comes after those of another key, but its sample began earlier: the members of a sample must \
             follow each other; pack it again in their order (tar --sort=name)",
            self.members,
            range.start,
            printable(name)
        );
        Error::input(self.path, what)
    }
}

fn one(label: Label) -> TarLabels {
    TarLabels { labels: vec![label], is_list: false }
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

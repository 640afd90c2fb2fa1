//! A near copy of a picture in another split, for people and for scripts; and the file that lists all.

use crate::error::Error;
use crate::{progress, text};
use loaders::overwrite::Content;
use loaders::{Dataset, printable, replace};
use serde_json::json;
use std::fmt::{self, Write};
use std::path::Path;

/// A picture of one split that another split has too.
#[derive(Debug, Clone, PartialEq)]
pub struct NearCopy {
    /// The later split: `test`, `validation`.
    pub split: String,
    /// The number of the picture in it.
    pub number: u64,
    /// The split that has it too.
    pub of: String,
    /// The number there.
    pub original: u64,
    /// Whether both records hold the same bytes.
    pub same_bytes: bool,
    /// 1 - correlation of the two pictures in 16 x 16 grey values.
    pub difference: f64,
}

/// Near copies that are named for each pair of splits.
const EXAMPLES: usize = 3;

/// The near copies in one split of pictures of another.
#[derive(Debug, PartialEq)]
struct Count<'a> {
    split: &'a str,
    of: &'a str,
    images: u64,
    same_bytes: u64,
}

fn counts(copies: &[NearCopy]) -> Vec<Count<'_>> {
    let mut counts: Vec<Count<'_>> = Vec::new();
    for copy in copies {
        let at = counts.iter().position(|c| c.split == copy.split && c.of == copy.of).unwrap_or_else(|| {
            counts.push(Count { split: &copy.split, of: &copy.of, images: 0, same_bytes: 0 });
            counts.len() - 1
        });
        counts[at].images += 1;
        counts[at].same_bytes += u64::from(copy.same_bytes);
    }
    counts
}

/// The names of a picture and of the one that it is a near copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyNames {
    /// The later split.
    pub split: String,
    /// The name of the picture in it.
    pub name: String,
    /// The split that has it too.
    pub of: String,
    /// The name there.
    pub original: String,
}

/// The names of the first near copies of each pair of splits; no names if the data set cannot be opened, which `verify` reports otherwise.
pub(super) fn examples(dir: &Path, copies: &[NearCopy]) -> Vec<CopyNames> {
    let mut shown: Vec<CopyNames> = Vec::new();
    let Some(dataset) = copies.first().and_then(|_| Dataset::open(dir).ok()) else { return shown };
    for NearCopy { split, number, of, original, .. } in copies {
        if shown.iter().filter(|shown| shown.split == *split && shown.of == *of).count() < EXAMPLES {
            let name = |split: &str, number| match about(&dataset, split, number).name {
                name if name.is_empty() => format!("image {number}"),
                name => name,
            };
            let (name, original) = (name(split, *number), name(of, *original));
            shown.push(CopyNames { split: split.clone(), name, of: of.clone(), original });
        }
    }
    shown
}

/// A line for each pair of splits that share pictures, and the names of some of these.
pub(super) fn write_counts(copies: &[NearCopy], examples: &[CopyNames], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for Count { split, of, images, same_bytes } in counts(copies) {
        let (has, images) = (if images == 1 { "has" } else { "have" }, text::plural(images, "image"));
        let same = text::count(same_bytes);
        write!(f, "\n  {images} of {split} {has} a near copy in {of}, {same} of them with the same bytes: ")?;
        write!(f, "scores on {split} count what was seen; --duplicates FILE lists them")?;
        for CopyNames { name, original, .. } in examples.iter().filter(|names| names.split == split && names.of == of) {
            write!(f, "\n    {} in {split} is {} in {of}", printable(name), printable(original))?;
        }
    }
    Ok(())
}

/// The counts for scripts.
pub(super) fn counts_json(copies: &[NearCopy], examples: &[CopyNames]) -> Vec<serde_json::Value> {
    let count = |c: Count<'_>| {
        let names = examples.iter().filter(|names| names.split == c.split && names.of == c.of);
        let names: Vec<[&str; 2]> = names.map(|names| [names.name.as_str(), names.original.as_str()]).collect();
        json!({"split": c.split, "of": c.of, "images": c.images, "same_bytes": c.same_bytes, "examples": names})
    };
    counts(copies).into_iter().map(count).collect()
}

/// The columns of the list.
const COLUMNS: &str = "split\timage\tclass\tname\tof_split\tof_image\tof_class\tof_name\tsame_bytes\tdifference\n";

/// The list: no other file is written over by one.
pub const COPIES: Content =
    Content { name: "a list of near copies", begins: |head| head.starts_with(b"split\timage\t") };

/// Writes the list of near copies of the data set in `dir` to `file`, whole or not at all: a line for each, its columns set apart by
/// tabs.
///
/// # Errors
/// A data set or a file that cannot be read or written.
pub fn write_duplicates(dir: &Path, copies: &[NearCopy], file: &Path) -> Result<(), Error> {
    let _watch = progress::watch()?;
    let dataset = Dataset::open(dir)?;
    let mut text = String::from(COLUMNS);
    for copy in copies {
        let mut columns = String::new();
        for (split, number) in [(&copy.split, copy.number), (&copy.of, copy.original)] {
            let About { class, name } = about(&dataset, split, number);
            // writing into a String cannot fail
            let _ = write!(columns, "{}\t{number}\t{}\t{}\t", printable(split), printable(&class), printable(&name));
        }
        let same = if copy.same_bytes { "yes" } else { "no" };
        let _ = writeln!(text, "{columns}{same}\t{:.6}", copy.difference);
    }
    Ok(replace::replace(file, text.as_bytes())?)
}

/// What a record says of its picture, for people.
#[derive(Default)]
struct About {
    class: String,
    name: String,
}

/// Empty for a record that cannot be read: `verify` names its fault.
fn about(dataset: &Dataset, split: &str, number: u64) -> About {
    let mut copy = Vec::new();
    let Ok(split) = dataset.split(split) else { return About::default() };
    let read = split.record(number, &mut copy);
    let about = read.map(|(example, _)| About {
        class: split.class_text(&example).unwrap_or_default(),
        name: example.filename.to_string(),
    });
    about.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_by_pairs_of_splits() {
        let copy = |split: &str, of: &str, same_bytes| NearCopy {
            split: split.into(),
            number: 1,
            of: of.into(),
            original: 2,
            same_bytes,
            difference: 0.0,
        };
        let copies = [copy("validation", "train", true), copy("test", "train", false), copy("test", "train", true)];
        let expected = [("validation", "train", 1, 1), ("test", "train", 2, 1)]
            .map(|(split, of, images, same_bytes)| Count { split, of, images, same_bytes });
        assert_eq!(counts(&copies), expected);
    }
}

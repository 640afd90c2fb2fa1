//! Near copies across splits: pictures of a later split that an earlier one has too, perhaps at another size, of another quality or
//! brightness. A score on such pictures is one of memory.
//!
//! Each picture is kept as 16 x 16 grey values (about 280 bytes). Of a picture the nearest one of each earlier split is reported, so the
//! report does not grow with the number of copies of a copy.

mod hashes;

use std::fmt::{self, Write};
use std::path::Path;

use loaders::overwrite::Content;
use loaders::{Dataset, printable, replace};
use serde_json::json;

use crate::error::Error;
use crate::{progress, text};

use crate::image::pixels::Reduced;
use crate::pool;
use hashes::Lookup;
use hashes::Thumbnail;
use loaders::Example;
use loaders::crc32c::crc32c;
use std::collections::BTreeMap;

/// Pictures of a split that are compared in one task.
const TASK: usize = 4096;

/// What is kept of a picture.
#[derive(Debug, Clone)]
pub(super) struct Picture {
    /// Its number in its shard; in a [`Gallery`] the one in its split.
    number: u64,
    thumbnail: Thumbnail,
    /// Checksum and length of what the record holds.
    bytes: (u32, u64),
}

impl Picture {
    /// The picture of record `number`.
    pub(super) fn new(number: u64, example: &Example<'_>, pixels: &Reduced<'_>) -> Self {
        let bytes = (crc32c(example.encoded), example.encoded.len() as u64);
        Picture { number, thumbnail: Thumbnail::of(pixels), bytes }
    }
}

/// The pictures of each split.
#[derive(Debug, Default)]
pub(super) struct Gallery(BTreeMap<String, Vec<Picture>>);

impl Gallery {
    /// Adds the pictures of a shard whose first record is number `first` of the split.
    pub(super) fn add(&mut self, split: &str, first: u64, pictures: Vec<Picture>) {
        let all = self.0.entry(split.to_string()).or_default();
        all.extend(pictures.into_iter().map(|picture| Picture { number: first + picture.number, ..picture }));
    }

    /// The pictures of each split that an earlier one has too: of `validation` those in `train`, of `test` those in either.
    pub(super) fn near_copies(&self, jobs: usize) -> Result<Vec<NearCopy>, Error> {
        let mut splits: Vec<(&String, &Vec<Picture>)> = self.0.iter().collect();
        splits.sort_by_key(|(name, _)| rank(name));
        let mut found = Vec::new();
        for (at, (of, originals)) in splits.iter().enumerate() {
            let lookup = Lookup::of(originals.iter().map(|picture| picture.thumbnail.hash()));
            for (split, pictures) in &splits[at + 1..] {
                let tasks: Vec<&[Picture]> = pictures.chunks(TASK).collect();
                let parts = pool::run(tasks.len(), jobs, |i| Ok(search(tasks[i], originals, &lookup)))?;
                found.extend(parts.into_iter().flatten().map(|pair| pair.named(split, of)));
            }
        }
        found.sort_by(|a, b| (rank(&a.split), &a.split, a.number).cmp(&(rank(&b.split), &b.split, b.number)));
        Ok(found)
    }
}

/// Splits are learnt from, chosen by and scored on in this order.
fn rank(split: &str) -> u8 {
    match split {
        "train" => 0,
        "validation" => 1,
        "test" => 3,
        _ => 2,
    }
}

/// A picture and the one that it is a copy of.
struct Pair<'a> {
    copy: &'a Picture,
    original: &'a Picture,
    difference: f64,
}

impl Pair<'_> {
    fn named(&self, split: &str, of: &str) -> NearCopy {
        NearCopy {
            split: split.to_string(),
            number: self.copy.number,
            of: of.to_string(),
            original: self.original.number,
            same_bytes: same_bytes(self.copy, self.original),
            difference: self.difference,
        }
    }
}

/// The nearest original of each picture that has one.
fn search<'a>(pictures: &'a [Picture], originals: &'a [Picture], lookup: &Lookup) -> Vec<Pair<'a>> {
    let nearest = |copy: &'a Picture| {
        let mut best: Option<Pair<'a>> = None;
        lookup.near(copy.thumbnail.hash(), |at| {
            let original = &originals[at];
            let found =
                if same_bytes(copy, original) { Some(0.0) } else { copy.thumbnail.difference(&original.thumbnail) };
            if let Some(difference) = found
                && best.as_ref().is_none_or(|b| (difference, original.number) < (b.difference, b.original.number))
            {
                best = Some(Pair { copy, original, difference });
            }
        });
        best
    };
    pictures.iter().filter_map(nearest).collect()
}

/// Equal thumbnails guard against checksums that are equal by chance.
fn same_bytes(a: &Picture, b: &Picture) -> bool {
    a.bytes == b.bytes && a.thumbnail == b.thumbnail
}

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

    /// A picture of waves; `salt` gives another one.
    fn waves(height: usize, width: usize, salt: usize) -> Vec<u8> {
        let value = |y: usize, x: usize| {
            let (y, x, s) = (y as f64 / height as f64, x as f64 / width as f64, salt as f64);
            let wave = (7.0 * y + s).sin() + (5.0 * x * (1.0 + s % 3.0)).cos() + (9.0 * x * y + 2.0 * s).sin();
            (128.0 + 40.0 * wave) as u8
        };
        (0..height * width).map(|i| value(i / width, i % width)).collect()
    }

    fn picture(number: u64, (height, width): (usize, usize), bytes: &[u8]) -> Picture {
        let pixels = Reduced { height, width, channels: 1, bytes };
        Picture { number, thumbnail: Thumbnail::of(&pixels), bytes: (crc32c(bytes), bytes.len() as u64) }
    }

    #[test]
    fn copies_are_found_at_other_sizes_and_brightness_and_each_once() {
        let mut gallery = Gallery::default();
        let train = |salt| waves(40, 48, salt);
        gallery.add("train", 0, (0..30).map(|i| picture(i, (40, 48), &train(i as usize))).collect());
        gallery.add("train", 30, vec![picture(0, (40, 48), &train(4))]);
        let dim: Vec<u8> = train(7).iter().map(|&v| v / 2 + 60).collect();
        let test = [waves(40, 48, 4), waves(90, 100, 11), dim, waves(40, 48, 200)];
        let sizes = [(40, 48), (90, 100), (40, 48), (40, 48)];
        gallery.add("test", 0, (0..4).map(|i| picture(i as u64, sizes[i], &test[i])).collect());
        let found = gallery.near_copies(2).unwrap();
        let pairs: Vec<_> = found.iter().map(|c| (c.number, c.original, c.same_bytes)).collect();
        assert_eq!(pairs, [(0, 4, true), (1, 11, false), (2, 7, false)]);
        assert!(found.iter().all(|c| (c.split.as_str(), c.of.as_str()) == ("test", "train")));
    }

    #[test]
    fn a_picture_of_one_colour_is_a_copy_only_of_the_same_bytes() {
        let mut gallery = Gallery::default();
        let plain = |value| vec![value; 400];
        gallery.add("train", 0, vec![picture(0, (20, 20), &plain(9))]);
        gallery.add("test", 0, vec![picture(0, (20, 20), &plain(10)), picture(1, (20, 20), &plain(9))]);
        let found = gallery.near_copies(1).unwrap();
        assert_eq!(found.iter().map(|c| (c.number, c.same_bytes)).collect::<Vec<_>>(), [(1, true)]);
    }
}

#[cfg(test)]
mod near_copy_tests {
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

//! ImageFolder: a folder for each class, its image files at any depth below.
//!
//! SRC/train beside SRC/val, SRC/validation or SRC/test become splits; else all of SRC is `train`. The classes are
//! those of `train`, sorted by their bytes, or a given list. Names that begin with a dot do not count.

use crate::error::Error;
use crate::kinds::reader::classes;
use crate::kinds::reader::input;
use crate::kinds::reader::listing::{Listing, Place};
use crate::options::{ConvertOptions, OnBad};
use crate::source::{Sample, Source, SourceSplit};
use crate::text;
use loaders::order::Permutation;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const HINT: &str = "expected a folder with a folder of images for each class, or with such folders below train and \
                    val, validation or test";
/// Endings of image files, in lower case.
const ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];
/// Folders in folders, at most: links can make a circle.
const DEPTH: usize = 32;
/// Folders that are splits, and the names that these get.
const SPLITS: [(&str, &str); 4] =
    [("train", "train"), ("val", "validation"), ("validation", "validation"), ("test", "test")];

/// What [`open`] makes.
pub(super) struct Files {
    pub classes: Vec<String>,
    pub splits: Vec<SourceSplit>,
    pub parts: Vec<Listing>,
    pub notes: Vec<String>,
}

/// Opens a folder of folders.
pub(super) fn open(src: &Path, options: &ConvertOptions) -> Result<Box<dyn Source>, Error> {
    input::check_dir(src, HINT)?;
    let mut finder = Finder { src, options, given: options.classes.is_some(), notes: Vec::new() };
    let splits = finder.splits()?;
    let train = classes_below(&src.join(&splits[0].1))?;
    if train.is_empty() {
        return Err(Error::Missing { path: src.join(&splits[0].1).join("CLASS"), hint: HINT.to_string() });
    }
    let names = match &options.classes {
        Some(path) => classes::read(path)?,
        None => train,
    };
    classes::check(src, &names)?;
    let (names, listing) = finder.train(&splits[0].1, names)?;
    let mut found = vec![("train".to_string(), listing)];
    for (name, folder) in &splits[1..] {
        let listing = finder.split(folder, &names)?;
        match listing.len() {
            0 => finder.notes.push(format!("split {name} left out: {folder} holds no image of a class")),
            _ => found.push((name.clone(), listing)),
        }
    }
    let notes = finder.notes;
    Ok(Box::new(Files::new(src, names, found, notes, options)?))
}

impl Files {
    /// The splits as found, and a `validation` drawn from `train` if the options ask for one.
    pub(super) fn new(
        src: &Path,
        classes: Vec<String>,
        mut found: Vec<(String, Listing)>,
        notes: Vec<String>,
        options: &ConvertOptions,
    ) -> Result<Self, Error> {
        if let Some(share) = options.validation_fraction {
            if found.iter().any(|(name, _)| name == "validation") {
                return Err(Error::Usage(format!("{} has a validation split; none can be drawn", src.display())));
            }
            let drawn = draw_validation(&mut found[0].1, classes.len(), share, options.seed);
            if drawn.len() == 0 {
                return Err(Error::Usage(format!(
                    "a validation fraction of {share} is less than one image of every class; ask for more"
                )));
            }
            found.insert(1, ("validation".to_string(), drawn));
        }
        let splits = found.iter().map(|(name, l)| SourceSplit { name: name.clone(), len: l.len() }).collect();
        Ok(Files { classes, splits, parts: found.into_iter().map(|(_, listing)| listing).collect(), notes })
    }

    /// A checksum over classes, names and labels.
    pub(super) fn digest(&self) -> u32 {
        let classes = self.classes.iter().fold(0, |crc, name| {
            let crc = crc32c::crc32c_append(crc, name.as_bytes());
            crc32c::crc32c_append(crc, b"\n")
        });
        self.parts.iter().fold(classes, |crc, listing| listing.digest(crc))
    }
}

/// Of each class its share, rounded, but never all: which of its files, a permutation of the class decides.
fn draw_validation(train: &mut Listing, classes: usize, share: f64, seed: u64) -> Listing {
    let mut counts = vec![0u64; classes];
    train.labels().for_each(|label| counts[label as usize] += 1);
    let wanted: Vec<u64> =
        counts.iter().map(|&n| ((n as f64 * share).round() as u64).min(n.saturating_sub(1))).collect();
    // Epoch 0 is the shuffle of the shards.
    let draws: Vec<Permutation> =
        counts.iter().enumerate().map(|(c, &n)| Permutation::new(seed, 1 + c as u32, n.max(1))).collect();
    let mut drawn: Vec<BTreeSet<u64>> =
        draws.iter().zip(&wanted).map(|(draw, &n)| (0..n).map(|i| draw.get(i)).collect()).collect();
    let mut next = vec![0u64; classes];
    let goes: Vec<bool> = train
        .labels()
        .map(|label| {
            let class = label as usize;
            next[class] += 1;
            drawn[class].remove(&(next[class] - 1))
        })
        .collect();
    train.split_off(&goes)
}

/// Looks through one source.
struct Finder<'a> {
    src: &'a Path,
    options: &'a ConvertOptions,
    /// Whether the user has listed the classes.
    given: bool,
    notes: Vec<String>,
}

impl Finder<'_> {
    /// The splits and their folders, `train` first.
    fn splits(&mut self) -> Result<Vec<(String, String)>, Error> {
        let folders = classes_below(self.src)?;
        let has = |name: &str| folders.iter().any(|f| f == name);
        let beside = SPLITS[1..].iter().any(|(folder, _)| has(folder));
        if !has("train") || !(beside || folders.len() == 1) {
            return Ok(vec![("train".to_string(), String::new())]);
        }
        if has("val") && has("validation") {
            return Err(Error::input(self.src, "holds val and validation; which of them is it?"));
        }
        let other: Vec<&str> =
            folders.iter().map(String::as_str).filter(|f| !SPLITS.iter().any(|(split, _)| split == f)).collect();
        if !other.is_empty() {
            self.notes.push(format!("left out, since they are no splits: {}", other.join(", ")));
        }
        let known = SPLITS.iter().filter(|(folder, _)| has(folder));
        Ok(known.map(|(folder, split)| (split.to_string(), folder.to_string())).collect())
    }

    /// The training split, and the classes with those left out that have no image.
    fn train(&mut self, folder: &str, names: Vec<String>) -> Result<(Vec<String>, Listing), Error> {
        let listing = self.split(folder, &names)?;
        let mut counts = vec![0u64; names.len()];
        listing.labels().for_each(|label| counts[label as usize] += 1);
        let empty: Vec<&str> = names.iter().zip(&counts).filter(|(_, n)| **n == 0).map(|(n, _)| n.as_str()).collect();
        if empty.is_empty() {
            return Ok((names, listing));
        }
        let path = self.src.join(folder);
        if listing.len() == 0 || self.options.on_bad == OnBad::Fail {
            let what = format!("no image (.jpg, .jpeg, .png) of the {} {}", classes_word(empty.len()), quoted(&empty));
            return Err(Error::input(&path, what + "; `--on-bad skip` goes on without"));
        }
        let what = format!("{} without images: {}", text::classes(empty.len()), empty.join(", "));
        if self.given {
            // Their labels are the user's.
            self.notes.push(what);
            return Ok((names, listing));
        }
        self.notes.push(format!("left out: {what}"));
        let names: Vec<String> = names.iter().zip(&counts).filter(|(_, n)| **n > 0).map(|(n, _)| n.clone()).collect();
        let listing = self.split_quietly(folder, &names)?;
        Ok((names, listing))
    }

    fn split_quietly(&mut self, folder: &str, names: &[String]) -> Result<Listing, Error> {
        let said = self.notes.len();
        let listing = self.split(folder, names);
        self.notes.truncate(said);
        listing
    }

    /// All images of the classes below the folder of a split.
    fn split(&mut self, folder: &str, names: &[String]) -> Result<Listing, Error> {
        let labels: BTreeMap<&str, u32> = names.iter().enumerate().map(|(i, n)| (n.as_str(), i as u32)).collect();
        let root = self.src.join(folder);
        let (mut listing, mut strange, mut outside) = (Listing::default(), Vec::new(), 0u64);
        listing.place(Place::Folder(self.src.to_path_buf()));
        for name in classes_below(&root)? {
            let mut files = Vec::new();
            let relative = if folder.is_empty() { PathBuf::from(&name) } else { Path::new(folder).join(&name) };
            let other = images_below(self.src, &relative, 0, &mut files)?;
            match labels.get(name.as_str()) {
                Some(&label) => {
                    outside += other;
                    files.iter().for_each(|file| listing.push(file, label, (0, 0)));
                }
                None if files.is_empty() => {}
                None => strange.push(format!("{name} ({})", text::plural(files.len() as u64, "image"))),
            }
        }
        if outside > 0 {
            let files = text::plural(outside, "file");
            self.notes.push(format!("{files} below {} ignored: not named .jpg, .jpeg or .png", root.display()));
        }
        match strange.len() {
            0 => {}
            _ if self.given || self.options.on_bad == OnBad::Skip => {
                self.notes.push(format!("{} left out, not among the classes: {}", root.display(), strange.join(", ")));
            }
            n => {
                let word = if n == 1 { "a class" } else { "classes" };
                let what = format!("holds {word} that train does not have: {}", strange.join(", "));
                return Err(Error::input(&root, what + "; `--on-bad skip` leaves them out"));
            }
        }
        Ok(listing)
    }
}

fn classes_word(n: usize) -> &'static str {
    if n == 1 { "class" } else { "classes" }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

/// A folder's entries by name, those that begin with a dot left out.
pub(super) fn entries(dir: &Path) -> Result<Vec<(String, bool)>, Error> {
    let failed = |e| Error::io("read", dir, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(Error::input(&entry.path(), "its name is not UTF-8; rename it"));
        };
        if name.starts_with('.') {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        // A link counts as what it leads to; one that leads nowhere counts as a file, whose reading will say so.
        let is_dir = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
        found.push((name, is_dir));
    }
    found.sort();
    Ok(found)
}

/// Names of the folders in `dir`, sorted.
fn classes_below(dir: &Path) -> Result<Vec<String>, Error> {
    Ok(entries(dir)?.into_iter().filter(|(_, is_dir)| *is_dir).map(|(name, _)| name).collect())
}

/// Appends the paths, from `root` on, of all image files below the folder `relative`; returns how many other files
/// there are.
pub(super) fn images_below(root: &Path, relative: &Path, depth: usize, files: &mut Vec<String>) -> Result<u64, Error> {
    let dir = root.join(relative);
    if depth > DEPTH {
        return Err(Error::input(&dir, format!("more than {DEPTH} folders deep; does a link lead back?")));
    }
    let mut other = 0;
    for (name, is_dir) in entries(&dir)? {
        let path = relative.join(&name);
        let ending = Path::new(&name).extension().and_then(|e| e.to_str()).map(str::to_lowercase);
        if is_dir {
            other += images_below(root, &path, depth + 1, files)?;
        } else if ending.is_some_and(|e| ENDINGS.contains(&e.as_str())) {
            files.push(path.to_string_lossy().into_owned());
        } else {
            other += 1;
        }
    }
    Ok(other)
}

impl Source for Files {
    fn splits(&self) -> &[SourceSplit] {
        &self.splits
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn fingerprint(&self) -> Option<u32> {
        Some(self.digest())
    }

    fn place(&self, split: usize, index: u64) -> PathBuf {
        self.parts[split].path(index)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        self.parts[split].read(index, sample)
    }
}

//! ImageFolder: one folder per class, with image files at any depth.
//!
//! If SRC contains `train`, or a synonym such as `training`, the folders named like splits (`val`, `valid`,
//! `Validation`, `dev`, `test`, ...) are splits. Otherwise all of SRC is `train`. The classes are the folders of
//! `train` in byte order, or a given list. Names that begin with a dot are ignored.

use super::reader::files::{Files, Listing, Place};
use super::reader::folders::{self, ENDING_NAMES, Images};
use super::reader::names;
use super::{Kind, Open, Opened, csv};
use crate::dir::{self, folders};
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::splits::{self, NameMatching, SplitAssigner, TRAIN, UnknownNames};
use crate::text;
use base::text::plural;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) const FOLDER: Kind = Kind {
    name: "folder",
    about: "a folder of images per class (ImageFolder), optionally within train, val and test; or images with --labels",
    open: Open::Files(open),
};

const HINT: &str = "expected a folder that contains a folder of images for each class, or train and val (or validation, test) with such \
                    folders";

/// If SRC contains no splits, the number of levels below it that are searched for splits, for an error message.
const MAX_DEPTH: usize = 4;
/// Label tables in Hugging Face's imagefolder format.
const METADATA: [&str; 3] = ["metadata.jsonl", "metadata.csv", "metadata.parquet"];

/// A split and its folders relative to SRC. An empty path means SRC.
struct SplitFolder {
    name: String,
    folders: Vec<String>,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    dir::check(src, HINT)?;
    if let Some(list) = &options.labels {
        return csv::open_folder_labels(src, list, options);
    }
    let mut finder = Finder { src, options, given: options.classes.is_some(), notes: Vec::new() };
    let splits = finder.splits()?;
    let mut train = BTreeSet::new();
    for folder in &splits[0].folders {
        train.extend(folders(&src.join(folder))?);
    }
    if train.is_empty() {
        return Err(no_classes(&src.join(&splits[0].folders[0]))?);
    }
    let names = match &options.classes {
        Some(path) => names::read(path)?,
        None => train.into_iter().collect(),
    };
    names::check(src, &names)?;
    let (names, listing) = finder.train(&splits[0], names)?;
    let mut found = vec![("train".to_string(), listing)];
    for split in &splits[1..] {
        let (SplitFolder { name, folders }, listing) = (split, finder.split(split, &names)?);
        match listing.len() {
            0 => finder
                .notes
                .push(format!("split {name} left out: no class folder with images in {}", text::first(folders))),
            _ => found.push((name.clone(), listing)),
        }
    }
    Ok(Box::new(Files::new(src, names, found, finder.notes, options)?))
}

struct Finder<'a> {
    src: &'a Path,
    options: &'a ConvertOptions,
    /// True if the user listed the classes.
    given: bool,
    notes: Vec<String>,
}

impl Finder<'_> {
    /// Returns the splits, `train` first.
    fn splits(&mut self) -> Result<Vec<SplitFolder>, Error> {
        let found = folders(self.src)?;
        let map = &self.options.split_map;
        let mapped =
            |name: &str| map.iter().find(|(from, _)| from.eq_ignore_ascii_case(name)).map(|(_, to)| to.as_str());
        let is_train = |name: &str| mapped(name).map_or_else(|| splits::is_train(name), |to| to == TRAIN);
        let (known, other): (Vec<&str>, Vec<&str>) =
            found.iter().map(String::as_str).partition(|name| splits::is_split(name) || mapped(name).is_some());
        let train = known.iter().find(|name| is_train(name));
        let mut parts = known.clone();
        match train {
            Some(train) if known.len() == 1 && !other.is_empty() => {
                // `train` may be a class in a vehicle data set, but not if its sibling folders look like splits
                parts.extend(self.like_splits(train, &other)?);
                if parts.len() == 1 {
                    parts.clear();
                }
            }
            Some(_) => {
                for &name in &other {
                    if !Images::below(self.src, Path::new(name))?.files.is_empty() {
                        parts.push(name);
                    }
                }
            }
            None => parts.clear(),
        }
        if parts.is_empty() && map.is_empty() {
            self.check_level(&found)?;
            return Ok(vec![SplitFolder { name: TRAIN.to_string(), folders: vec![String::new()] }]);
        }
        let splits = self.assign(&parts)?;
        let other: Vec<&str> = other.into_iter().filter(|name| !parts.contains(name)).collect();
        if !other.is_empty() {
            self.notes.push(format!("left out, because they contain no images: {}", text::first(&other)));
        }
        // The images of a split are in its folder. Images next to the split folders are probably examples or overviews.
        let Loose { images, zips, metadata } = Loose::find(self.src)?;
        self.note_loose(self.src, &images, "next to the folders of the splits");
        self.note_zips(self.src, &zips);
        self.note_metadata(self.src, metadata);
        Ok(splits)
    }

    /// Groups the folders `parts` by split, `train` first.
    fn assign(&self, parts: &[&str]) -> Result<Vec<SplitFolder>, Error> {
        let map = &self.options.split_map;
        let mapped = |name: &str| map.iter().any(|(from, _)| from.eq_ignore_ascii_case(name));
        let assign = SplitAssigner { src: self.src, map, names: NameMatching::Whole, unknown: UnknownNames::Train };
        let mut splits: Vec<SplitFolder> = Vec::new();
        for (split, part) in assign.splits(parts)?.into_iter().zip(parts) {
            let Some(split) = split else { continue };
            match splits.iter_mut().find(|other| other.name == split) {
                None => splits.push(SplitFolder { name: split, folders: vec![part.to_string()] }),
                Some(other) if mapped(part) || mapped(&other.folders[0]) => {
                    other.folders.push(part.to_string());
                }
                Some(other) => {
                    let what = format!("both {} and {part} could be the split {split};", other.folders[0]);
                    return Err(Error::input(self.src, what + " leave one of them out with --split-map NAME=none"));
                }
            }
        }
        splits.sort_by(|a, b| (splits::rank(&a.name), &a.name).cmp(&(splits::rank(&b.name), &b.name)));
        if splits.first().is_none_or(|first| first.name != TRAIN) {
            return Err(Error::input(self.src, format!("there is no folder for the split train; {HINT}")));
        }
        Ok(splits)
    }

    /// Returns siblings of `train` that look like splits: the name contains a split word, or the folder has the same subfolders as `train`.
    fn like_splits<'b>(&self, train: &str, others: &[&'b str]) -> Result<Vec<&'b str>, Error> {
        let classes: BTreeSet<String> = folders(&self.src.join(train))?.into_iter().collect();
        let mut found = Vec::new();
        for &name in others {
            let below = folders(&self.src.join(name))?;
            if !classes.is_empty()
                && (splits::mentions_split(name) || below.iter().any(|class| classes.contains(class)))
            {
                found.push(name);
            }
        }
        Ok(found)
    }

    /// Returns an error if a folder in `found` contains splits, directly or a few levels down. Otherwise each split would
    /// become a class.
    fn check_level(&self, found: &[String]) -> Result<(), Error> {
        for name in found {
            let mut path = self.src.join(name);
            for _ in 0..MAX_DEPTH {
                let below = folders(&path)?;
                let splits: Vec<&String> = below.iter().filter(|name| splits::is_split(name)).collect();
                let has_train = splits.iter().any(|name| splits::is_train(name));
                if has_train
                    && (splits.len() > 1
                        || below.len() == 1 && found.len() == 1 && !folders(&path.join(splits[0]))?.is_empty())
                {
                    let what = format!(
                        "the splits {} are in {}; convert that folder (if `{name}` is a class, each split needs its own folder for it: \
                         train/{name})",
                        text::first(&splits),
                        path.display()
                    );
                    return Err(Error::input(self.src, what));
                }
                match below.as_slice() {
                    [only] if found.len() == 1 => path = path.join(only),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Lists the images of `train` and returns the classes. Classes without images are left out, unless the user listed
    /// the classes.
    fn train(&mut self, split: &SplitFolder, names: Vec<String>) -> Result<(Vec<String>, Listing), Error> {
        let listing = self.split(split, &names)?;
        let counts = listing.counts(names.len());
        let empty: Vec<&str> = names.iter().zip(&counts).filter(|(_, n)| **n == 0).map(|(n, _)| n.as_str()).collect();
        if empty.is_empty() {
            return Ok((names, listing));
        }
        if listing.len() == 0 || self.options.on_bad == OnBad::Fail {
            return Err(no_images(&self.src.join(&split.folders[0]), &empty));
        }
        let what = format!("{} without images: {}", plural(empty.len(), "class"), text::first(&empty));
        if self.given {
            // The user's list also determines the label numbers, so no class may be removed.
            self.notes.push(what);
            return Ok((names, listing));
        }
        self.notes.push(format!("left out: {what}"));
        let names: Vec<String> = names.iter().zip(&counts).filter(|(_, n)| **n > 0).map(|(n, _)| n.clone()).collect();
        // Listing again adds the notes of the first listing once more, so these are removed.
        let notes = self.notes.len();
        let listing = self.split(split, &names)?;
        self.notes.truncate(notes);
        Ok((names, listing))
    }

    fn split(&mut self, split: &SplitFolder, names: &[String]) -> Result<Listing, Error> {
        let labels: BTreeMap<&str, u32> = names.iter().enumerate().map(|(i, n)| (n.as_str(), i as u32)).collect();
        let mut listing = Listing::default();
        listing.place(Place::Folder(self.src.to_path_buf()));
        for folder in &split.folders {
            let root = if folder.is_empty() { self.src.to_path_buf() } else { self.src.join(folder) };
            let (mut unknown, mut ignored) = (Vec::new(), 0u64);
            for name in folders(&root)? {
                let relative = if folder.is_empty() { PathBuf::from(&name) } else { Path::new(folder).join(&name) };
                let Images { files, other } = Images::below(self.src, &relative)?;
                match labels.get(name.as_str()) {
                    Some(&label) => {
                        ignored += other;
                        files.iter().for_each(|file| listing.push(file, label, (0, 0)));
                    }
                    None if files.is_empty() => {}
                    None => unknown.push(format!("{name} ({})", text::plural(files.len() as u64, "image"))),
                }
            }
            if ignored > 0 {
                let files = text::plural(ignored, "file");
                self.notes
                    .push(format!("{files} in {} ignored: the name does not end in {ENDING_NAMES}", root.display()));
            }
            self.check_unknown(&root, &unknown)?;
            // A `test` folder often has images without labels and is then skipped.
            let has_classes = split.name == TRAIN || listing.len() > 0;
            self.check_loose(&root, has_classes)?;
        }
        Ok(listing)
    }

    /// Handles images next to the class folders, which would be missing from the data set: returns an error or adds a
    /// note. A ZIP archive is only noted, because the folders were often unpacked from it.
    fn check_loose(&mut self, root: &Path, has_classes: bool) -> Result<(), Error> {
        let Loose { images, zips, metadata } = Loose::find(root)?;
        self.note_metadata(root, metadata);
        if !images.is_empty() && has_classes && !self.given && self.options.on_bad == OnBad::Fail {
            let (count, first) = (text::plural(images.len() as u64, "image"), text::first(&images));
            let what = format!(
                "found {count} next to the class folders: {first}; move each image into the folder of its class or out of this folder, \
                 or leave them out with `--on-bad skip` or a list of `--classes`"
            );
            return Err(Error::input(root, what));
        }
        self.note_loose(root, &images, if has_classes { "next to the class folders" } else { "not in a class folder" });
        self.note_zips(root, &zips);
        Ok(())
    }

    fn note_loose(&mut self, folder: &Path, images: &[String], place: &str) {
        if !images.is_empty() {
            let (count, first) = (text::plural(images.len() as u64, "image"), text::first(images));
            self.notes.push(format!("left out: {count} in {}, {place}: {first}", folder.display()));
        }
    }

    fn note_metadata(&mut self, folder: &Path, metadata: Option<String>) {
        if let Some(name) = metadata {
            let file = folder.join(name);
            self.notes.push(format!(
                "{} is not read, because the folders are the classes (`trireme data convert csv` reads labels from such a file)",
                file.display()
            ));
        }
    }

    fn note_zips(&mut self, folder: &Path, zips: &[String]) {
        if !zips.is_empty() {
            let (count, first) = (text::plural(zips.len() as u64, "ZIP archive"), text::first(zips));
            let cure = "unpack it unless its files are already in a folder";
            self.notes.push(format!("left out: {count} in {}: {first}; {cure}", folder.display()));
        }
    }

    /// Handles folders in `root` whose names are not classes: returns an error or adds a note.
    fn check_unknown(&mut self, root: &Path, unknown: &[String]) -> Result<(), Error> {
        if unknown.is_empty() {
            return Ok(());
        }
        let list = text::first(unknown);
        if self.given || self.options.on_bad == OnBad::Skip {
            self.notes.push(format!("left out folders in {} that are not classes: {list}", root.display()));
            return Ok(());
        }
        let word = if unknown.len() == 1 { "a class" } else { "classes" };
        let what = format!(
            "found {word} that train does not have: {list}; add such images to train, or leave them out with `--on-bad skip`"
        );
        Err(Error::input(root, what))
    }
}

/// Files directly in a folder that may contain images: image files and ZIP archives.
struct Loose {
    images: Vec<String>,
    zips: Vec<String>,
    /// The name of the label table in Hugging Face's imagefolder format.
    metadata: Option<String>,
}

impl Loose {
    fn find(folder: &Path) -> Result<Self, Error> {
        let (mut images, mut zips, mut metadata) = (Vec::new(), Vec::new(), None);
        for entry in dir::entries(folder)?.into_iter().filter(|entry| !entry.is_dir) {
            if folders::is_image(&entry.name) {
                images.push(entry.name);
            } else if entry.name.to_lowercase().ends_with(".zip") {
                zips.push(entry.name);
            } else if METADATA.contains(&entry.name.as_str()) {
                metadata = Some(entry.name);
            }
        }
        Ok(Loose { images, zips, metadata })
    }
}

/// Returns the error for classes without images.
fn no_images(path: &Path, classes: &[&str]) -> Error {
    let word = if classes.len() == 1 { "class" } else { "classes" };
    let quoted: Vec<String> = classes.iter().map(|name| format!("`{name}`")).collect();
    let first = text::first(&quoted);
    let what = format!("no image ({ENDING_NAMES}) of the {word} {first}; use `--on-bad skip` to continue without");
    Error::input(path, what)
}

/// Returns the error for a folder without subfolders. The advice depends on its content.
fn no_classes(root: &Path) -> Result<Error, Error> {
    let Loose { images, zips, metadata } = Loose::find(root)?;
    if let Some(metadata) = metadata {
        let what = format!(
            "the folder contains images and {metadata} (Hugging Face's imagefolder) but no class folders; use `trireme data convert csv \
             {}`, which reads labels from that file",
            root.join(&metadata).display()
        );
        return Ok(Error::input(root, what));
    }
    if let Some(first) = images.first() {
        let what = format!(
            "the folder contains {} but no class folders; move the images of each class into a folder (such as {}), or list the labels \
             in a table and use `trireme data convert csv`",
            text::plural(images.len() as u64, "image"),
            root.join("CLASS").join(first).display()
        );
        return Ok(Error::input(root, what));
    }
    match zips.first() {
        Some(zip) => Ok(dir::zip(&root.join(zip))),
        None => {
            Ok(Error::input(root, format!("no images found: the folder contains neither folders nor images; {HINT}")))
        }
    }
}

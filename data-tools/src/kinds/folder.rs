//! ImageFolder: a folder for each class, with its image files at any depth below.
//!
//! SRC/train beside SRC/val or SRC/test, or alone, become splits, by any of the words for them (`training`, `valid`, `Validation`, `dev`,
//! ...); else all of SRC is `train`. The classes are those of `train`, sorted by their bytes, or a given list. Names that begin with a dot
//! are ignored.

use super::folder_labels;
use super::kind::{Kind, Open, Opened};
use super::reader::classes;
use super::reader::files::Files;
use super::reader::folders::{self, ENDING_NAMES, Images, folders};
use super::reader::listing::{Listing, Place};
use super::reader::splits;
use crate::dir;
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::text;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// ImageFolder.
pub(super) const FOLDER: Kind = Kind {
    name: "folder",
    about: "a folder for each class (ImageFolder), of image files; below train, val, test or not; or --labels",
    open: Open::Files(open),
};

const HINT: &str = "expected a folder with a folder of images for each class, or with such folders below train and \
                    val, validation or test";

/// A split, and its folder below SRC; the empty path is SRC itself.
struct SplitFolder {
    name: &'static str,
    folder: String,
}

/// Opens a folder of folders.
fn open(src: &Path, options: &ConvertOptions) -> Opened {
    dir::check(src, HINT)?;
    if let Some(list) = &options.labels {
        return folder_labels::open(src, list, options);
    }
    let mut finder = Finder { src, options, given: options.classes.is_some(), notes: Vec::new() };
    let splits = finder.splits()?;
    let root = src.join(&splits[0].folder);
    let train = folders(&root)?;
    if train.is_empty() {
        return Err(no_classes(&root)?);
    }
    let names = match &options.classes {
        Some(path) => classes::read(path)?,
        None => train,
    };
    classes::check(src, &names)?;
    let (names, listing) = finder.train(&splits[0], names)?;
    let mut found = vec![("train".to_string(), listing)];
    for split in &splits[1..] {
        let (SplitFolder { name, folder }, listing) = (split, finder.split(split, &names)?);
        match listing.len() {
            0 => finder.notes.push(format!("split {name} left out: {folder} holds no image of a class")),
            _ => found.push((name.to_string(), listing)),
        }
    }
    Ok(Box::new(Files::new(src, names, found, finder.notes, options)?))
}

/// Lists the images of one source.
struct Finder<'a> {
    src: &'a Path,
    options: &'a ConvertOptions,
    /// Whether the user has listed the classes.
    given: bool,
    notes: Vec<String>,
}

impl Finder<'_> {
    /// The splits, `train` first.
    fn splits(&mut self) -> Result<Vec<SplitFolder>, Error> {
        let found = folders(self.src)?;
        let (mut splits, mut other) = (Vec::new(), Vec::new());
        for folder in &found {
            match splits::of_word(folder) {
                Some(name) => splits.push(SplitFolder { name, folder: folder.clone() }),
                None => other.push(folder.as_str()),
            }
        }
        let has = |train: bool| splits.iter().any(|split| (split.name == "train") == train);
        if !has(true) || !(has(false) || found.len() == 1) {
            return Ok(vec![SplitFolder { name: "train", folder: String::new() }]);
        }
        splits.sort_by_key(|split| splits::rank(split.name));
        if let Some(pair) = splits.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let what = format!("holds {} and {}; which of them is it?", pair[0].folder, pair[1].folder);
            return Err(Error::input(self.src, what));
        }
        if !other.is_empty() {
            self.notes.push(format!("left out, since they are no splits: {}", other.join(", ")));
        }
        // the images of the splits are below their folders; what lies beside these is a sample or an overview
        let Loose { images, zips } = Loose::of(self.src)?;
        self.note_loose(self.src, &images, "beside the folders of the splits");
        self.note_zips(self.src, &zips);
        Ok(splits)
    }

    /// The images of `train`, and the classes; without a given list, classes without images are left out.
    fn train(&mut self, split: &SplitFolder, names: Vec<String>) -> Result<(Vec<String>, Listing), Error> {
        let listing = self.split(split, &names)?;
        let mut counts = vec![0u64; names.len()];
        listing.labels().for_each(|label| counts[label as usize] += 1);
        let empty: Vec<&str> = names.iter().zip(&counts).filter(|(_, n)| **n == 0).map(|(n, _)| n.as_str()).collect();
        if empty.is_empty() {
            return Ok((names, listing));
        }
        if listing.len() == 0 || self.options.on_bad == OnBad::Fail {
            return Err(no_images(&self.src.join(&split.folder), &empty));
        }
        let what = format!("{} without images: {}", text::classes(empty.len()), text::first(&empty));
        if self.given {
            // A given list also gives the labels, so no class may be left out.
            self.notes.push(what);
            return Ok((names, listing));
        }
        self.notes.push(format!("left out: {what}"));
        let names: Vec<String> = names.iter().zip(&counts).filter(|(_, n)| **n > 0).map(|(n, _)| n.clone()).collect();
        // The second listing would repeat the notes of the first.
        let notes = self.notes.len();
        let listing = self.split(split, &names)?;
        self.notes.truncate(notes);
        Ok((names, listing))
    }

    /// All images of the classes below the folder of a split.
    fn split(&mut self, split: &SplitFolder, names: &[String]) -> Result<Listing, Error> {
        let folder = split.folder.as_str();
        let labels: BTreeMap<&str, u32> = names.iter().enumerate().map(|(i, n)| (n.as_str(), i as u32)).collect();
        let root = if folder.is_empty() { self.src.to_path_buf() } else { self.src.join(folder) };
        let (mut listing, mut unknown, mut ignored) = (Listing::default(), Vec::new(), 0u64);
        listing.place(Place::Folder(self.src.to_path_buf()));
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
            self.notes.push(format!("{files} below {} ignored: not named {ENDING_NAMES}", root.display()));
        }
        self.check_unknown(&root, &unknown)?;
        // a `test` of images without labels is usual, and left out as a whole
        let has_classes = split.name == "train" || listing.len() > 0;
        self.check_loose(&root, has_classes)?;
        Ok(listing)
    }

    /// Notes or refuses images that lie beside the folders of the classes: they would be missing. A ZIP archive there is only noted: often
    /// it is what the folders were unpacked from.
    fn check_loose(&mut self, root: &Path, has_classes: bool) -> Result<(), Error> {
        let Loose { images, zips } = Loose::of(root)?;
        if !images.is_empty() && has_classes && !self.given && self.options.on_bad == OnBad::Fail {
            let (count, first) = (text::plural(images.len() as u64, "image"), text::first(&images));
            let what = format!(
                "holds {count} beside the folders of its classes: {first}; move each into the folder of its class, or out of this folder; \
                 `--on-bad skip`, or a list of `--classes`, leaves them out"
            );
            return Err(Error::input(root, what));
        }
        self.note_loose(
            root,
            &images,
            if has_classes { "beside the folders of the classes" } else { "in no folder of a class" },
        );
        self.note_zips(root, &zips);
        Ok(())
    }

    fn note_loose(&mut self, folder: &Path, images: &[String], place: &str) {
        if !images.is_empty() {
            let (count, first) = (text::plural(images.len() as u64, "image"), text::first(images));
            self.notes.push(format!("left out: {count} in {}, {place}: {first}", folder.display()));
        }
    }

    fn note_zips(&mut self, folder: &Path, zips: &[String]) {
        if !zips.is_empty() {
            let (count, first) = (text::plural(zips.len() as u64, "ZIP archive"), text::first(zips));
            let cure = "unpack what is not in a folder yet";
            self.notes.push(format!("left out: {count} in {}: {first}; {cure}", folder.display()));
        }
    }

    /// Notes or refuses folders of images that are no class.
    fn check_unknown(&mut self, root: &Path, unknown: &[String]) -> Result<(), Error> {
        if unknown.is_empty() {
            return Ok(());
        }
        let list = text::first(unknown);
        if self.given || self.options.on_bad == OnBad::Skip {
            self.notes.push(format!("{} left out, not among the classes: {list}", root.display()));
            return Ok(());
        }
        let word = if unknown.len() == 1 { "a class" } else { "classes" };
        let what = format!("holds {word} that train does not have: {list}; `--on-bad skip` leaves them out");
        Err(Error::input(root, what))
    }
}

/// What lies in a folder itself that may hold pictures: the names of images, and of ZIP archives.
struct Loose {
    images: Vec<String>,
    zips: Vec<String>,
}

impl Loose {
    fn of(folder: &Path) -> Result<Self, Error> {
        let (mut images, mut zips) = (Vec::new(), Vec::new());
        for entry in folders::entries(folder)?.into_iter().filter(|entry| !entry.is_dir) {
            if folders::is_image(&entry.name) {
                images.push(entry.name);
            } else if entry.name.to_lowercase().ends_with(".zip") {
                zips.push(entry.name);
            }
        }
        Ok(Loose { images, zips })
    }
}

/// The error for classes without images.
fn no_images(path: &Path, classes: &[&str]) -> Error {
    let word = if classes.len() == 1 { "class" } else { "classes" };
    let quoted: Vec<String> = classes.iter().map(|name| format!("`{name}`")).collect();
    let first = text::first(&quoted);
    let what = format!("no image ({ENDING_NAMES}) of the {word} {first}; `--on-bad skip` goes on without");
    Error::input(path, what)
}

/// What to do with a folder that has no folders: what is in it may tell.
fn no_classes(root: &Path) -> Result<Error, Error> {
    let Loose { images, zips } = Loose::of(root)?;
    if let Some(first) = images.first() {
        let what = format!(
            "holds {} and no folder: make a folder for each class and move its images there (such as {}), or list the labels in a \
             table: `trireme data convert csv`",
            text::plural(images.len() as u64, "image"),
            root.join("CLASS").join(first).display()
        );
        return Ok(Error::input(root, what));
    }
    match zips.first() {
        Some(zip) => Ok(dir::zip(&root.join(zip))),
        None => Ok(Error::input(root, format!("images not found: it holds neither folders nor pictures; {HINT}"))),
    }
}

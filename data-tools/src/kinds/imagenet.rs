//! ImageNet (ILSVRC2012), as published (a tar of 1000 tars, a tar of validation images, the development kit) or
//! extracted. Archives are read in place.
//!
//! As in TensorFlow's shards, labels are 1 to 1000 in order of the WordNet ids (`label_offset` is 1), and PNG and CMYK
//! files become RGB JPEGs. Records contain the synset, its words and, if the archives with boxes exist, the boxes of
//! objects.

use super::reader::devkit::{self, Annotations, Devkit, Synset};
use super::reader::files::{Files, Listing};
use super::reader::folders::{self, Group};
use super::reader::input::Budget;
use super::reader::names;
use super::{Kind, Open, Opened};
use crate::dir::{self, entries};
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::source::{Sample, Source, SourceInfo, Stamp};
use crate::text::{self, is_wnid};
use base::text::plural;
use loaders::crc32c::crc32c_append;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) const IMAGENET: Kind = Kind {
    name: "imagenet",
    about: "ILSVRC2012 as published (tar files and devkit), or extracted",
    open: Open::Files(open),
};

const HINT: &str = "expected a folder with ILSVRC2012_img_train.tar or train/, ILSVRC2012_img_val.tar or val/, and \
                    ILSVRC2012_devkit_t12.tar.gz";
/// The remedy for a source that lacks images or labels.
const FETCH: &str = "fetch it again";
const TRAIN: [&str; 3] = ["ILSVRC2012_img_train.tar", "train", "ILSVRC2012_img_train"];
const VALIDATION: [&str; 4] = ["ILSVRC2012_img_val.tar", "val", "validation", "ILSVRC2012_img_val"];

/// Optional archives with boxes of objects in the training and validation images.
const BOXES: [&str; 3] =
    ["ILSVRC2012_bbox_train_v2.tar.gz", "ILSVRC2012_bbox_val_v3.tgz", "ILSVRC2012_bbox_val_v3.tar.gz"];

struct ImageNet {
    files: Files,
    synsets: Vec<Synset>,
    boxes: Annotations,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    dir::check(src, HINT)?;
    let find = |names: &[&str]| names.iter().map(|name| src.join(name)).find(|path| path.exists());
    let train = find(&TRAIN).ok_or_else(|| Error::missing(src.join(TRAIN[0]), HINT))?;
    let kit = devkit::find(src).map(|path| devkit::read_devkit(&path, &options.limits)).transpose()?;
    let groups = folders::read(&train, options.jobs)?;
    let synsets = choose_classes(src, options, kit.as_ref(), &groups)?;
    let mut opener = Opener { options, synsets, kit, notes: Vec::new() };
    let mut found = vec![("train".to_string(), opener.train(&train, groups)?)];
    match find(&VALIDATION) {
        Some(path) => found.push(("validation".to_string(), opener.validation(&path)?)),
        None => {
            opener.notes.push(format!("no validation images: {} does not exist", src.join(VALIDATION[0]).display()))
        }
    }
    let Opener { synsets, notes, .. } = opener;
    let name = |s: &Synset| if s.words.is_empty() { s.wnid.clone() } else { format!("{} {}", s.wnid, s.words) };
    let names = synsets.iter().map(name).collect();
    let (mut boxes, mut budget) = (Annotations::new(), Budget::new(options.limits));
    for path in BOXES.iter().map(|name| src.join(name)).filter(|path| path.is_file()) {
        devkit::read_annotations(&path, &mut budget, &mut boxes)?;
    }
    Ok(Box::new(ImageNet { files: Files::new(src, names, found, notes, options)?, synsets, boxes }))
}

/// Returns the classes that the user listed. Without a list, returns all classes of the development kit, or of the
/// training images if there is no kit.
fn choose_classes(
    src: &Path,
    options: &ConvertOptions,
    kit: Option<&Devkit>,
    groups: &[Group],
) -> Result<Vec<Synset>, Error> {
    let mut known: Vec<Synset> = match kit {
        Some(kit) => kit.synsets.clone(),
        None => {
            // A class may have an archive and an empty folder.
            let named: BTreeSet<&String> = groups.iter().map(|g| &g.name).filter(|name| is_wnid(name)).collect();
            named.into_iter().map(|name| Synset { wnid: name.clone(), words: String::new() }).collect()
        }
    };
    known.sort_by(|a, b| a.wnid.cmp(&b.wnid));
    if known.is_empty() {
        return Err(Error::missing(src.join("train/nXXXXXXXX"), HINT));
    }
    let Some(path) = &options.classes else { return Ok(known) };
    let mut seen = BTreeSet::new();
    let wanted = names::read(path)?.into_iter().map(|line| {
        let wnid = line.split_whitespace().next().unwrap_or_default();
        if !seen.insert(wnid.to_string()) {
            return Err(Error::input(path, format!("the class `{wnid}` is listed twice")));
        }
        let found = known.iter().find(|s| s.wnid == wnid).cloned();
        found.ok_or_else(|| Error::input(path, format!("`{wnid}` is not one of the {} classes", known.len())))
    });
    wanted.collect()
}

struct Opener<'a> {
    options: &'a ConvertOptions,
    synsets: Vec<Synset>,
    kit: Option<Devkit>,
    notes: Vec<String>,
}

impl Opener<'_> {
    fn labels(&self) -> BTreeMap<String, u32> {
        self.synsets.iter().enumerate().map(|(i, s)| (s.wnid.clone(), i as u32)).collect()
    }

    /// Handles a fault of the source: returns an error that ends with `remedy`, or adds a note with `--on-bad skip`.
    fn fault(&mut self, path: &Path, what: String, remedy: &str) -> Result<(), Error> {
        match self.options.on_bad {
            OnBad::Fail => {
                Err(Error::input(path, format!("{what}; {remedy}, or use `--on-bad skip` to continue without")))
            }
            OnBad::Skip => {
                self.notes.push(format!("{}: {what}", path.display()));
                Ok(())
            }
        }
    }

    /// Lists the training images. A class without images is a fault.
    fn train(&mut self, path: &Path, groups: Vec<Group>) -> Result<Listing, Error> {
        let listing = self.by_class(path, groups)?;
        let counts = listing.counts(self.synsets.len());
        let empty = self.synsets.iter().zip(&counts).filter(|(_, n)| **n == 0);
        let empty: Vec<&str> = empty.map(|(s, _)| s.wnid.as_str()).collect();
        if !empty.is_empty() {
            let (n, first) = (plural(empty.len(), "class"), text::first(&empty));
            self.fault(path, format!("{n} of {} without images, such as {first}", self.synsets.len()), FETCH)?;
        }
        Ok(listing)
    }

    /// Lists images that are grouped by class, in folders or archives. Returns an error if two groups of a class have
    /// images. They usually contain the same images, and either may be incomplete.
    fn by_class(&mut self, path: &Path, groups: Vec<Group>) -> Result<Listing, Error> {
        let labels = self.labels();
        let (mut listing, mut unknown, mut seen) = (Listing::default(), Vec::new(), BTreeSet::new());
        for group in groups.into_iter().filter(|group| !group.members.is_empty()) {
            match labels.get(&group.name) {
                Some(&label) if seen.insert(label) => group.add_to(&mut listing, |_| Some(label)),
                Some(_) => {
                    let what = format!(
                        "the class {0} has two folders or archives, such as {0}/ and {0}.tar, so its images would be converted twice; \
                         move one of them away",
                        group.name
                    );
                    return Err(Error::input(path, what));
                }
                None => unknown.push(group.name),
            }
        }
        if !unknown.is_empty() && self.options.classes.is_none() {
            let (classes, first) = (self.synsets.len(), text::first(&unknown));
            let what = format!(
                "some folders or archives are not named after one of the {classes} classes (WordNet ids such as n01440764): {first}"
            );
            self.fault(path, what, "move them away")?;
        }
        not_empty(path, listing)
    }

    /// Lists the validation images, which are either grouped by class or in one folder or archive. In the second case,
    /// the labels come from the development kit.
    fn validation(&mut self, path: &Path) -> Result<Listing, Error> {
        if path.is_dir() && entries(path)?.iter().any(|entry| entry.is_dir && is_wnid(&entry.name)) {
            let groups = folders::read(path, self.options.jobs)?;
            return self.by_class(path, groups);
        }
        let Some(kit) = self.kit.take() else {
            let hint = "it contains the labels of the validation images";
            return Err(Error::missing(path.with_file_name("ILSVRC2012_devkit_t12.tar.gz"), hint));
        };
        let group = Group::read(path, String::new())?;
        self.check_truth(path, &group, &kit)?;
        let labels = self.labels();
        let mut listing = Listing::default();
        group.add_to(&mut listing, |name| kit.truth_of(name).and_then(|wnid| labels.get(wnid)).copied());
        not_empty(path, listing)
    }

    /// Checks that each image has a line in the ground truth, and that there are as many images as lines.
    fn check_truth(&mut self, path: &Path, group: &Group, kit: &Devkit) -> Result<(), Error> {
        let names = group.members.iter().map(|m| m.name.as_str());
        let unlabelled: Vec<&str> = names.filter(|name| kit.truth_of(name).is_none()).collect();
        if let Some(first) = unlabelled.first() {
            let images = text::plural(unlabelled.len() as u64, "image");
            self.fault(path, format!("{images} without a label, such as {first}"), FETCH)?;
        }
        let labelled = group.members.len() - unlabelled.len();
        if labelled != kit.truth.len() {
            let images = text::plural(labelled as u64, "image");
            let what = format!("{images}, but {} labels in {}", kit.truth.len(), kit.truth_path.display());
            self.fault(path, what, FETCH)?;
        }
        Ok(())
    }
}

fn not_empty(path: &Path, listing: Listing) -> Result<Listing, Error> {
    match listing.len() {
        0 => Err(Error::input(path, format!("no image of a class found; {HINT}"))),
        _ => Ok(listing),
    }
}

impl Source for ImageNet {
    fn info(&self) -> &SourceInfo {
        self.files.info()
    }

    fn text(&self, label: u32) -> &str {
        self.synsets.get(label as usize).map_or("", |s| s.words.as_str())
    }

    fn synset(&self, label: u32) -> Option<&str> {
        self.synsets.get(label as usize).map(|s| s.wnid.as_str())
    }

    fn label_offset(&self) -> i64 {
        1
    }

    fn png_as_jpeg(&self) -> bool {
        true
    }

    fn fingerprint(&self) -> Option<u32> {
        // Adding or removing the archives with boxes changes the records.
        let boxes = |crc| crc32c_append(crc, &(self.boxes.len() as u64).to_le_bytes());
        self.files.fingerprint().map(|crc| if self.boxes.is_empty() { crc } else { boxes(crc) })
    }

    fn stamp(&self, split: usize, index: u64) -> Option<Stamp> {
        self.files.stamp(split, index)
    }

    fn place(&self, split: usize, index: u64) -> PathBuf {
        self.files.place(split, index)
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        self.files.sample(split, index, sample)?;
        let name = Path::new(&sample.filename).file_stem().unwrap_or_default().to_string_lossy();
        sample.boxes.set(self.boxes.get(&*name).map(Vec::as_slice).unwrap_or_default());
        Ok(())
    }
}

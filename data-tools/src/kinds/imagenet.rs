//! ImageNet, ILSVRC2012: as published (a tar of 1000 tars, a tar of validation images, the development kit) or
//! extracted. Archives are read where they lie.
//!
//! As in TensorFlow's shards, labels are 1 to 1000 in order of the WordNet ids (`label_offset` 1), PNG and CMYK
//! files become RGB JPEGs, and records hold synset and words.

use super::folder::{Files, entries, images_below};
use super::reader::devkit::{self, Devkit, Synset};
use super::reader::tar_index::{self, Member};
use crate::error::Error;
use crate::kinds::reader::classes;
use crate::kinds::reader::listing::{Listing, Place};
use crate::options::{ConvertOptions, OnBad};
use crate::source::{Sample, Source, SourceSplit};
use crate::{kinds::reader::input, pool, text};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HINT: &str = "expected a folder with ILSVRC2012_img_train.tar or train/, ILSVRC2012_img_val.tar or val/, and \
                    ILSVRC2012_devkit_t12.tar.gz";
const TRAIN: [&str; 3] = ["ILSVRC2012_img_train.tar", "train", "ILSVRC2012_img_train"];
const VALIDATION: [&str; 4] = ["ILSVRC2012_img_val.tar", "val", "validation", "ILSVRC2012_img_val"];

struct ImageNet {
    files: Files,
    synsets: Vec<Synset>,
}

/// Opens a folder with the published files, or what they unpack to.
pub(super) fn open(src: &Path, options: &ConvertOptions) -> Result<Box<dyn Source>, Error> {
    input::check_dir(src, HINT)?;
    let find = |names: &[&str]| names.iter().map(|name| src.join(name)).find(|path| path.exists());
    let train = find(&TRAIN).ok_or_else(|| Error::Missing { path: src.join(TRAIN[0]), hint: HINT.to_string() })?;
    let kit = devkit::find(src).map(|path| devkit::read(&path)).transpose()?;
    let groups = groups(&train, options.jobs)?;
    let synsets = choose(src, options, kit.as_ref(), &groups)?;
    let mut opener = Opener { options, synsets, kit, notes: Vec::new() };
    let mut found = vec![("train".to_string(), opener.by_class(&train, groups, true)?)];
    match find(&VALIDATION) {
        Some(path) => found.push(("validation".to_string(), opener.validation(&path)?)),
        None => opener.notes.push(format!("no validation images: {} is not there", src.join(VALIDATION[0]).display())),
    }
    let Opener { synsets, notes, .. } = opener;
    let name = |s: &Synset| if s.words.is_empty() { s.wnid.clone() } else { format!("{} {}", s.wnid, s.words) };
    let names = synsets.iter().map(name).collect();
    Ok(Box::new(ImageNet { files: Files::new(src, names, found, notes, options)?, synsets }))
}

/// Images that lie together and, in training, are of one class.
struct Group {
    name: String,
    place: Place,
    members: Vec<Member>,
}

/// The images at `path` by the folder or the inner archive that they are in.
fn groups(path: &Path, jobs: usize) -> Result<Vec<Group>, Error> {
    if path.is_file() {
        let file = Arc::new(open_file(path)?);
        let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
        let outer = tar_index::list(&file, path, 0..length)?;
        let mut inner: Vec<&Member> = outer.iter().filter(|m| m.name.ends_with(".tar")).collect();
        inner.sort_by(|a, b| a.name.cmp(&b.name));
        return pool::run(inner.len(), jobs, |i| {
            let path = path.join(&inner[i].name);
            let members = tar_index::list(&file, &path, inner[i].range.clone())?;
            Ok(Group { name: stem(&inner[i].name), place: Place::Archive { path, file: Some(file.clone()) }, members })
        });
    }
    let entries = entries(path)?;
    pool::run(entries.len(), jobs, |i| {
        let (name, is_dir) = &entries[i];
        let path = path.join(name);
        if *is_dir {
            let mut names = Vec::new();
            images_below(&path, Path::new(""), 0, &mut names)?;
            let members = names.into_iter().map(|name| Member { name, range: 0..0 }).collect();
            return Ok(Group { name: name.clone(), place: Place::Folder(path), members });
        }
        let members = match name.ends_with(".tar") {
            true => {
                let file = open_file(&path)?;
                let length = file.metadata().map_err(|e| Error::io("read", &path, e))?.len();
                tar_index::list(&file, &path, 0..length)?
            }
            false => Vec::new(),
        };
        Ok(Group { name: stem(name), place: Place::Archive { path, file: None }, members })
    })
}

fn open_file(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|e| Error::io("open", path, e))
}

fn stem(name: &str) -> String {
    name.trim_end_matches(".tar").to_string()
}

/// The classes: as listed by the user, else all of the kit, else those of the training images.
fn choose(src: &Path, options: &ConvertOptions, kit: Option<&Devkit>, groups: &[Group]) -> Result<Vec<Synset>, Error> {
    let mut known: Vec<Synset> = match kit {
        Some(kit) => kit.synsets.clone(),
        None => {
            let named = groups.iter().filter(|g| is_wnid(&g.name));
            named.map(|g| Synset { wnid: g.name.clone(), words: String::new() }).collect()
        }
    };
    known.sort_by(|a, b| a.wnid.cmp(&b.wnid));
    if known.is_empty() {
        return Err(Error::Missing { path: src.join("train/nXXXXXXXX"), hint: HINT.to_string() });
    }
    let Some(path) = &options.classes else { return Ok(known) };
    let wanted = classes::read(path)?.into_iter().map(|line| {
        let wnid = line.split_whitespace().next().unwrap_or_default();
        let found = known.iter().find(|s| s.wnid == wnid).cloned();
        found.ok_or_else(|| Error::input(path, format!("`{wnid}` is none of the {} classes", known.len())))
    });
    wanted.collect()
}

/// `n` and eight digits.
fn is_wnid(name: &str) -> bool {
    name.len() == 9 && name.starts_with('n') && name[1..].bytes().all(|b| b.is_ascii_digit())
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

    /// A fault of the source that `--on-bad skip` goes on past.
    fn fault(&mut self, path: &Path, what: String) -> Result<(), Error> {
        match self.options.on_bad {
            OnBad::Fail => Err(Error::input(path, what + "; fetch it again, or go on without by `--on-bad skip`")),
            OnBad::Skip => {
                self.notes.push(format!("{}: {what}", path.display()));
                Ok(())
            }
        }
    }

    /// Images in a folder or archive for each class.
    fn by_class(&mut self, path: &Path, groups: Vec<Group>, all: bool) -> Result<Listing, Error> {
        let labels = self.labels();
        let (mut listing, mut counts, mut strange) = (Listing::default(), vec![0u64; labels.len()], Vec::new());
        for group in groups {
            let Some(&label) = labels.get(&group.name) else {
                if !group.members.is_empty() {
                    strange.push(group.name);
                }
                continue;
            };
            counts[label as usize] += group.members.len() as u64;
            push(&mut listing, group.place, &group.members, |_| Some(label));
        }
        if !strange.is_empty() && self.options.classes.is_none() {
            self.fault(path, format!("holds images of no class: {}", strange.join(", ")))?;
        }
        let empty = self.synsets.iter().zip(&counts).filter(|(_, n)| **n == 0);
        let empty: Vec<&str> = empty.map(|(s, _)| s.wnid.as_str()).collect();
        if listing.len() == 0 {
            return Err(Error::input(path, format!("holds no image of a class; {HINT}")));
        }
        if all && !empty.is_empty() {
            let (n, first) = (text::classes(empty.len()), empty[..empty.len().min(5)].join(", "));
            self.fault(path, format!("no image of {n} of {}, such as {first}", self.synsets.len()))?;
        }
        Ok(listing)
    }

    /// The validation images: by class, or flat with the kit's ground truth.
    fn validation(&mut self, path: &Path) -> Result<Listing, Error> {
        if path.is_dir() && entries(path)?.iter().any(|(name, is_dir)| *is_dir && is_wnid(name)) {
            let groups = groups(path, self.options.jobs)?;
            return self.by_class(path, groups, false);
        }
        let Some(kit) = self.kit.take() else {
            let hint = "the labels of the validation images are in it".to_string();
            return Err(Error::Missing { path: path.with_file_name("ILSVRC2012_devkit_t12.tar.gz"), hint });
        };
        let (place, members) = if path.is_dir() {
            let mut names = Vec::new();
            images_below(path, Path::new(""), 0, &mut names)?;
            let members = names.into_iter().map(|name| Member { name, range: 0..0 }).collect();
            (Place::Folder(path.to_path_buf()), members)
        } else {
            let file = open_file(path)?;
            let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
            let members: Vec<Member> = tar_index::list(&file, path, 0..length)?;
            (Place::Archive { path: path.to_path_buf(), file: Some(Arc::new(file)) }, members)
        };
        let labels = self.labels();
        let truth = |m: &Member| number(&m.name).and_then(|n| kit.truth.get(n.checked_sub(1)?));
        let unlabelled: Vec<&str> = members.iter().filter(|m| truth(m).is_none()).map(|m| m.name.as_str()).collect();
        if let Some(first) = unlabelled.first() {
            let what = format!("{} without a label, such as {first}", text::plural(unlabelled.len() as u64, "image"));
            self.fault(path, what)?;
        }
        let labelled = members.len() - unlabelled.len();
        if labelled != kit.truth.len() {
            let images = text::plural(labelled as u64, "image");
            self.fault(path, format!("{images} for {} lines of {}", kit.truth.len(), kit.truth_path.display()))?;
        }
        let mut listing = Listing::default();
        push(&mut listing, place, &members, |m| truth(m).and_then(|wnid| labels.get(wnid)).copied());
        if listing.len() == 0 {
            return Err(Error::input(path, format!("holds no image of a class; {HINT}")));
        }
        Ok(listing)
    }
}

/// Adds those members that have a label, by name: archive and folder give the same data set.
fn push(listing: &mut Listing, place: Place, members: &[Member], label: impl Fn(&Member) -> Option<u32>) {
    listing.place(place);
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    for member in members {
        if let Some(label) = label(member) {
            let range = &member.range;
            listing.push(&member.name, label, (range.start, range.end - range.start));
        }
    }
}

/// The number in `ILSVRC2012_val_00000001.JPEG`.
fn number(name: &str) -> Option<usize> {
    let (stem, _) = name.split_once('.')?;
    stem.strip_prefix("ILSVRC2012_val_")?.parse().ok()
}

impl Source for ImageNet {
    fn splits(&self) -> &[SourceSplit] {
        &self.files.splits
    }

    fn classes(&self) -> &[String] {
        &self.files.classes
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
        Some(self.files.digest())
    }

    fn place(&self, split: usize, index: u64) -> PathBuf {
        self.files.parts[split].path(index)
    }

    fn notes(&self) -> &[String] {
        &self.files.notes
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        self.files.parts[split].read(index, sample)
    }
}

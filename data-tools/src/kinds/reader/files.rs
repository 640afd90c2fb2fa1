//! A source of image files. Assigns files to splits, lists the files of each split, and can draw a validation split
//! from `train`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::text::plural;
use loaders::crc32c::crc32c_append;
use loaders::stall::during;
use loaders::{Format, LabelKind, LabelSets, Limits, regular};

use super::recordio;
use crate::dir::{self, Entry, entries};
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::raw::{self, MAX_FILE, RawOptions, hdf5, is_hdf5};
use crate::source::{Sample, Source, SourceInfo, SourceSplit, Stamp};
use crate::splits::{self, NameMatching, SplitAssigner, UnknownNames, draw};
use crate::text;

pub(crate) struct Files {
    info: SourceInfo,
    listings: Vec<Listing>,
    /// The total file size, set only if samples share files.
    pub bytes: Option<u64>,
    /// How to read HDF5 files, which hold one image each.
    bands: RawOptions,
    limits: Limits,
}

impl Files {
    /// Creates a source from the splits that were found, with `train` first. Also draws a split `validation` from
    /// `train` if the options request it.
    pub fn new(
        src: &Path,
        classes: Vec<String>,
        mut found: Vec<(String, Listing)>,
        mut notes: Vec<String>,
        options: &ConvertOptions,
    ) -> Result<Self, Error> {
        let is_usable = |(name, listing): &(String, Listing)| {
            if listing.len() == 0 {
                notes.push(format!("split {name} left out: it contains no usable image"));
            }
            listing.len() > 0
        };
        found.retain(is_usable);
        if found.is_empty() {
            return Err(Error::input(src, "no usable image found"));
        }
        if let Some(share) = options.validation_fraction {
            if found.iter().any(|(name, _)| name == "validation") {
                return Err(Error::Usage(format!(
                    "{} already has a validation split; leave out --validation-fraction",
                    src.display()
                )));
            }
            if found[0].0 != "train" {
                return Err(Error::Usage(format!(
                    "{} has no split `train`, from which --validation-fraction draws",
                    src.display()
                )));
            }
            let drawn = draw_validation(&mut found[0].1, classes.len(), share, options.seed);
            if drawn.len() == 0 {
                return Err(Error::Usage(format!(
                    "--validation-fraction {share} selects no image: a class gives one only if it has at least two images, and the \
                     number of its images x {share} is at least 0.5; use a larger fraction"
                )));
            }
            notes.extend(without_validation(&found[0].1, &drawn, &classes));
            found.insert(1, ("validation".to_string(), drawn));
        }
        let splits = found.iter().map(|(name, l)| SourceSplit { name: name.clone(), len: l.len() }).collect();
        let info = SourceInfo { splits, classes, targets: options.targets.clone(), notes, skipped: Vec::new() };
        Ok(Files {
            info,
            listings: found.into_iter().map(|(_, listing)| listing).collect(),
            bytes: None,
            bands: options.bands.clone(),
            limits: options.limits,
        })
    }

    pub fn with_skipped(mut self, skipped: Vec<String>) -> Self {
        self.info.skipped = skipped;
        self
    }
}

/// Moves a random share of each class to a new listing. The share is rounded, but at least one image of the class
/// stays. If images may have multiple classes, the share is drawn from all images together.
fn draw_validation(train: &mut Listing, classes: usize, share: f64, seed: u64) -> Listing {
    let labels: Vec<u32> = train.labels().collect();
    let wanted = |n: u64| ((n as f64 * share).round() as u64).min(n.saturating_sub(1));
    train.split_off(&draw(&labels, classes.max(1), wanted, seed))
}

/// Names the classes with training images but without a validation image, which get no score. Returns `None` if there
/// is no such class, or if an image does not have exactly one class.
fn without_validation(train: &Listing, drawn: &Listing, classes: &[String]) -> Option<String> {
    if train.kind() != LabelKind::OneClass {
        return None;
    }
    let (left, drawn) = (train.counts(classes.len()), drawn.counts(classes.len()));
    let without = classes.iter().zip(left.iter().zip(&drawn)).filter(|(_, (left, drawn))| **left > 0 && **drawn == 0);
    let names: Vec<&str> = without.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let count = plural(names.len(), "class");
        format!(
            "{count} without a validation image, because the class has a single image, or the number of its images x \
             --validation-fraction is less than 0.5: {}",
            text::first(&names)
        )
    })
}

impl Source for Files {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn label_kind(&self) -> LabelKind {
        self.listings.iter().map(Listing::kind).find(|kind| *kind != LabelKind::OneClass).unwrap_or_default()
    }

    /// Computes a checksum over classes, file names and labels, and over each archive's size and time.
    fn fingerprint(&self) -> Option<u32> {
        let classes = self.info.classes.iter().chain(&self.info.targets).fold(0, |crc, name| {
            let crc = crc32c_append(crc, name.as_bytes());
            crc32c_append(crc, b"\n")
        });
        Some(self.listings.iter().fold(classes, |crc, listing| listing.digest(crc)))
    }

    fn stamp(&self, split: usize, index: u64) -> Option<Stamp> {
        self.listings[split].stamp(index)
    }

    fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn place(&self, split: usize, index: u64) -> PathBuf {
        self.listings[split].path(index)
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let listing = &self.listings[split];
        match listing.hdf5(index) {
            None => listing.read(index, sample),
            Some(path) => {
                let image = hdf5::read_image(&path, &self.bands, &self.limits)?;
                listing.describe(index, sample);
                sample.set_image(image);
                Ok(())
            }
        }
    }
}

/// A search for the files of a source and their splits.
pub(crate) struct FileSplits<'a> {
    pub src: &'a Path,
    /// The file extension with its dot.
    pub ending: &'a str,
    /// Subfolders that are searched as if their files were in SRC.
    pub plain_folders: &'a [&'a str],
    pub options: &'a ConvertOptions,
}

impl FileSplits<'_> {
    /// Returns the files and their splits, sorted by split and path. `hint` tells the user what SRC should be. Returns
    /// an error if a folder cannot be read, or if only some files have a known split.
    pub(crate) fn find(&self, hint: &str) -> Result<Vec<(String, PathBuf)>, Error> {
        let mut files = Vec::new();
        if self.src.is_file() {
            let stem = self.src.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((splits::series(&stem).to_string(), self.src.to_path_buf()));
        } else {
            dir::check(self.src, hint)?;
            self.add(self.src, None, &mut files)?;
            let mut folders = Vec::new();
            for Entry { name, .. } in entries(self.src)?.into_iter().filter(|entry| entry.is_dir) {
                match self.plain_folders.contains(&name.as_str()) {
                    true => self.add(&self.src.join(&name), None, &mut files)?,
                    false => folders.push(name),
                }
            }
            // Search other folders only if the name of a folder or file contains a split word.
            let is_mapped = |name: &str| self.options.split_map.iter().any(|(from, _)| from.eq_ignore_ascii_case(name));
            let has_splits = folders.iter().map(String::as_str).chain(files.iter().map(|(name, _)| name.as_str()));
            if has_splits.into_iter().any(|name| splits::mentions_split(name) || is_mapped(name)) {
                for name in &folders {
                    self.add(&self.src.join(name), Some(name), &mut files)?;
                }
            }
        }
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let map = &self.options.split_map;
        let assign = SplitAssigner { src: self.src, map, names: NameMatching::Loose, unknown: UnknownNames::Train };
        let assigned = if files.is_empty() { Vec::new() } else { assign.splits(&names)? };
        let found = assigned.into_iter().zip(files).filter_map(|(split, (_, path))| Some((split?, path)));
        let mut found: Vec<(String, PathBuf)> = found.collect();
        found.sort_by(|a, b| (splits::rank(&a.0), &a.0, &a.1).cmp(&(splits::rank(&b.0), &b.0, &b.1)));
        Ok(found)
    }

    /// Works like [`Self::find`]. A source without files is an error that names the missing file `example`.
    pub(crate) fn find_some(&self, example: &str, hint: &str) -> Result<Vec<(String, PathBuf)>, Error> {
        match self.find(hint)? {
            found if found.is_empty() => Err(Error::missing(self.src.join(example), hint)),
            found => Ok(found),
        }
    }

    /// Adds the files in a folder. Each entry keeps the name that determines the split: the folder's name if set, otherwise the file's.
    fn add(&self, dir: &Path, folder: Option<&str>, files: &mut Vec<(String, PathBuf)>) -> Result<(), Error> {
        for Entry { name, is_dir } in entries(dir)? {
            if let Some(stem) = name.strip_suffix(self.ending).filter(|_| !is_dir) {
                files.push((folder.unwrap_or_else(|| splits::series(stem)).to_string(), dir.join(&name)));
            }
        }
        Ok(())
    }
}

// The image files of one split, listed once and then read in any order. They are files in folders, or members of tar
// archives at known offsets. Each file uses about 70 bytes of memory.

/// Where the files of a listing are stored.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In this folder or its subfolders.
    Folder(PathBuf),
    /// In an archive. If `file` is `None`, the archive is opened for each read, because a process cannot keep a
    /// thousand archives open.
    Archive {
        /// Path of the archive, for messages. For an inner archive, the path of the outer archive followed by its name.
        path: PathBuf,
        /// The file that contains the archive.
        file: Option<Arc<File>>,
    },
    /// In a RecordIO file, as a record that is split into parts. The range covers all parts.
    Parts {
        /// Path of the file, for messages.
        path: PathBuf,
        file: Arc<File>,
    },
}

impl Place {
    /// Returns size and time of the archive, or `None` for a folder, where each file has its own.
    fn stamp(&self) -> Option<Stamp> {
        let metadata = match self {
            Place::Folder(_) => return None,
            Place::Archive { path, file: None } => path.metadata(),
            Place::Archive { file: Some(file), .. } | Place::Parts { file, .. } => file.metadata(),
        };
        // If this fails, reading the archive will report the error.
        metadata.ok().map(|metadata| Stamp::of(&metadata))
    }
}

#[derive(Debug, Clone, Copy)]
struct Item {
    place: u32,
    /// The file's class, or its index in `Listing::sets` or `Listing::numbers`.
    label: u32,
    /// Start and length of the file's name in `names`.
    name: (u64, u32),
    /// Offset and size in an archive.
    range: (u64, u64),
}

/// The files of one split with their labels.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    places: Vec<Place>,
    names: String,
    items: Vec<Item>,
    /// The sets of classes, if files may have multiple classes.
    sets: Option<LabelSets>,
    /// The targets of all files, one file after the other, and the number of targets per file. Empty and 0 if the
    /// labels are classes.
    numbers: Vec<f32>,
    width: usize,
}

impl Listing {
    /// Adds a place. Files that are added next are in this place.
    pub(crate) fn place(&mut self, place: Place) {
        self.places.push(place);
    }

    /// Adds a file in the place that was added last. `range` is its offset and size in an archive.
    pub(crate) fn push(&mut self, name: &str, label: u32, range: (u64, u64)) {
        let place = (self.places.len().saturating_sub(1)) as u32;
        self.items.push(Item { place, label, name: (self.names.len() as u64, name.len() as u32), range });
        self.names.push_str(name);
    }

    pub(crate) fn push_set(&mut self, name: &str, classes: &[u32], range: (u64, u64)) {
        let sets = self.sets.get_or_insert_default();
        let number = sets.len() as u32;
        sets.push(classes.iter().copied());
        self.push(name, number, range);
    }

    pub(crate) fn push_numbers(&mut self, name: &str, numbers: &[f32], range: (u64, u64)) {
        self.width = numbers.len().max(1);
        let number = (self.numbers.len() / self.width) as u32;
        self.numbers.extend_from_slice(numbers);
        self.push(name, number, range);
    }

    /// Returns a file's targets, or `None` if the labels are classes.
    fn numbers_of(&self, item: &Item) -> Option<&[f32]> {
        (self.width > 0).then(|| &self.numbers[item.label as usize * self.width..][..self.width])
    }

    pub(crate) fn kind(&self) -> LabelKind {
        match (&self.sets, self.width) {
            (Some(_), _) => LabelKind::Classes,
            (None, 0) => LabelKind::OneClass,
            (None, _) => LabelKind::Numbers,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    /// Returns each file's class. If files have sets of classes or targets instead, returns 0 for each.
    pub(crate) fn labels(&self) -> impl Iterator<Item = u32> {
        let is_class = self.kind() == LabelKind::OneClass;
        self.items.iter().map(move |i| if is_class { i.label } else { 0 })
    }

    pub(crate) fn counts(&self, classes: usize) -> Vec<u64> {
        let mut counts = vec![0; classes];
        self.labels().for_each(|label| counts[label as usize] += 1);
        counts
    }

    /// Moves the files for which `other` is true to a new listing. Both listings keep the order.
    pub(crate) fn split_off(&mut self, other: &[bool]) -> Listing {
        let (places, names) = (self.places.clone(), self.names.clone());
        let (sets, numbers) = (self.sets.clone(), self.numbers.clone());
        let mut taken = Listing { places, names, items: Vec::new(), sets, numbers, width: self.width };
        let mut left = Vec::new();
        for (item, &goes) in self.items.iter().zip(other) {
            if goes { taken.items.push(*item) } else { left.push(*item) }
        }
        self.items = left;
        taken
    }

    /// Computes a checksum of archives, file names, labels and ranges, continuing from the checksum `seed`.
    pub(crate) fn digest(&self, seed: u32) -> u32 {
        let archives =
            self.places.iter().filter_map(Place::stamp).fold(seed, |crc, Stamp { bytes, seconds, nanoseconds }| {
                let parts = [bytes.to_le_bytes(), seconds.to_le_bytes(), nanoseconds.to_le_bytes()];
                crc32c_append(crc, &parts.concat())
            });
        self.items.iter().fold(archives, |crc, item| {
            let crc = crc32c_append(crc, self.name(item).as_bytes());
            let one = std::slice::from_ref(&item.label);
            let labels = self.sets.as_ref().map_or(one, |sets| sets.get(item.label as usize));
            let crc = labels.iter().fold(crc, |crc, label| crc32c_append(crc, &label.to_le_bytes()));
            let numbers = self.numbers_of(item).into_iter().flatten();
            let crc = numbers.fold(crc, |crc, number| crc32c_append(crc, &number.to_le_bytes()));
            let crc = crc32c_append(crc, &item.range.0.to_le_bytes());
            crc32c_append(crc, &item.range.1.to_le_bytes())
        })
    }

    fn name(&self, item: &Item) -> &str {
        let start = item.name.0 as usize;
        self.names.get(start..start + item.name.1 as usize).unwrap_or("")
    }

    /// Returns the path of file `index`, for messages.
    pub(crate) fn path(&self, index: u64) -> PathBuf {
        let Some(item) = self.items.get(index as usize) else { return PathBuf::new() };
        match &self.places[item.place as usize] {
            Place::Folder(path) | Place::Archive { path, .. } | Place::Parts { path, .. } => path.join(self.name(item)),
        }
    }

    /// Returns size and time of file `index`, if it is in a folder.
    pub(crate) fn stamp(&self, index: u64) -> Option<Stamp> {
        let item = self.items.get(index as usize)?;
        match &self.places[item.place as usize] {
            Place::Folder(path) => path.join(self.name(item)).metadata().ok().map(|metadata| Stamp::of(&metadata)),
            Place::Archive { .. } | Place::Parts { .. } => None,
        }
    }

    /// Returns the path of file `index` if it is an HDF5 file in a folder. libhdf5 opens such files itself.
    fn hdf5(&self, index: u64) -> Option<PathBuf> {
        let item = &self.items[index as usize];
        let is_folder = matches!(self.places[item.place as usize], Place::Folder(_));
        (is_folder && is_hdf5(Path::new(self.name(item)))).then(|| self.path(index))
    }

    /// Reads file `index` unchanged, with its label and name.
    pub(crate) fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let item = &self.items[index as usize];
        // The conversion detects format and size. See `Sample`.
        (sample.format, sample.height, sample.width, sample.channels) = (Format::Jpeg, 0, 0, 0);
        self.describe(index, sample);
        sample.encoded.clear();
        let length = self.read_bytes(item, &mut sample.encoded).map_err(|e| Error::io("read", &self.path(index), e))?;
        if length > MAX_FILE { Err(raw::too_large(&self.path(index))) } else { Ok(()) }
    }

    /// Copies the name of file `index` and its labels or targets to `sample`.
    fn describe(&self, index: u64, sample: &mut Sample) {
        let item = &self.items[index as usize];
        sample.labels.clear();
        match (&self.sets, self.numbers_of(item)) {
            (Some(sets), _) => sample.labels.extend_from_slice(sets.get(item.label as usize)),
            (None, Some(numbers)) => sample.targets.set(numbers.iter().copied()),
            (None, None) => sample.label = item.label,
        }
        sample.filename.clear();
        sample.filename.push_str(self.name(item));
    }

    /// Reads a file into the empty buffer `out` and returns its size. If the size exceeds the limit, `out` is
    /// incomplete.
    fn read_bytes(&self, item: &Item, out: &mut Vec<u8>) -> io::Result<u64> {
        match &self.places[item.place as usize] {
            Place::Folder(path) => {
                let path = path.join(self.name(item));
                let file = regular::open(&path)?;
                Ok(during("reading", &path, || file.take(MAX_FILE + 1).read_to_end(out))? as u64)
            }
            Place::Archive { .. } | Place::Parts { .. } if item.range.1 > MAX_FILE => Ok(item.range.1),
            Place::Parts { path, file } => {
                out.resize(item.range.1 as usize, 0);
                during("reading", path, || file.read_exact_at(out, item.range.0))?;
                recordio::image_of_parts(out)?;
                Ok(out.len() as u64)
            }
            Place::Archive { path, file } => {
                out.resize(item.range.1 as usize, 0);
                during("reading", path, || match file {
                    Some(file) => file.read_exact_at(out, item.range.0),
                    None => regular::open(path)?.read_exact_at(out, item.range.0),
                })?;
                Ok(item.range.1)
            }
        }
    }
}

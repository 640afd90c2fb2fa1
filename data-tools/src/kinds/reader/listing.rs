//! The image files of one split, listed once and then read in any order: files of folders, or members of tar archives at
//! their offsets. About 70 bytes are kept for each file.

use super::recordio;
use crate::error::Error;
use crate::source::{Sample, Stamp};
use loaders::crc32c::crc32c_append;
use loaders::stall::during;
use loaders::{Format, LabelSets, regular};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The largest image file that is read.
const MAX_FILE: u64 = 1 << 29;

/// Where files are stored.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In a folder.
    Folder(PathBuf),
    /// In an archive. Without `file`, its path is opened for each read: a process cannot hold a thousand archives open.
    Archive {
        /// The archive, for messages; for an inner archive the path of the outer one and its name there.
        path: PathBuf,
        /// The file that holds it.
        file: Option<Arc<File>>,
    },
    /// In the parts of a split record of a RecordIO file; a range is that of all parts.
    Parts {
        /// The file's path, for messages.
        path: PathBuf,
        file: Arc<File>,
    },
}

impl Place {
    /// Size and time of the archive; none of a folder, whose files have their own.
    fn stamp(&self) -> Option<Stamp> {
        let metadata = match self {
            Place::Folder(_) => return None,
            Place::Archive { path, file: None } => path.metadata(),
            Place::Archive { file: Some(file), .. } | Place::Parts { file, .. } => file.metadata(),
        };
        // an archive that cannot be looked at is reported when it is read
        metadata.ok().map(|metadata| Stamp::of(&metadata))
    }
}

/// One file.
#[derive(Debug, Clone, Copy)]
struct Item {
    place: u32,
    /// Its class; where it may have several, the number of its set of them.
    label: u32,
    /// Its name: start and length in `names`.
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
    /// The classes of files that may have several.
    sets: Option<LabelSets>,
}

impl Listing {
    /// Adds a place, for the files that follow.
    pub(crate) fn place(&mut self, place: Place) {
        self.places.push(place);
    }

    /// Adds a file at the latest place; `range` is its offset and size in an archive.
    pub(crate) fn push(&mut self, name: &str, label: u32, range: (u64, u64)) {
        let place = (self.places.len().saturating_sub(1)) as u32;
        self.items.push(Item { place, label, name: (self.names.len() as u64, name.len() as u32), range });
        self.names.push_str(name);
    }

    /// The same for a file that may have several classes, or none.
    pub(crate) fn push_set(&mut self, name: &str, classes: &[u32], range: (u64, u64)) {
        let sets = self.sets.get_or_insert_default();
        let number = sets.len() as u32;
        sets.push(classes.iter().copied());
        self.push(name, number, range);
    }

    /// Whether files may have several classes.
    pub(crate) fn multi_label(&self) -> bool {
        self.sets.is_some()
    }

    /// Number of files.
    pub(crate) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    /// The label of each file; where there may be several, all files count as one class.
    pub(crate) fn labels(&self) -> impl Iterator<Item = u32> {
        self.items.iter().map(|i| if self.multi_label() { 0 } else { i.label })
    }

    /// Moves the files for which `other` is true to a new listing; the order stays.
    pub(crate) fn split_off(&mut self, other: &[bool]) -> Listing {
        let (places, names, sets) = (self.places.clone(), self.names.clone(), self.sets.clone());
        let mut taken = Listing { places, names, items: Vec::new(), sets };
        let mut left = Vec::new();
        for (item, &goes) in self.items.iter().zip(other) {
            if goes { taken.items.push(*item) } else { left.push(*item) }
        }
        self.items = left;
        taken
    }

    /// A checksum over archives, names, labels and places in archives, continued from `seed`.
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
            let crc = crc32c_append(crc, &item.range.0.to_le_bytes());
            crc32c_append(crc, &item.range.1.to_le_bytes())
        })
    }

    fn name(&self, item: &Item) -> &str {
        let start = item.name.0 as usize;
        self.names.get(start..start + item.name.1 as usize).unwrap_or("")
    }

    /// The path of file `index`, for messages.
    pub(crate) fn path(&self, index: u64) -> PathBuf {
        let Some(item) = self.items.get(index as usize) else { return PathBuf::new() };
        match &self.places[item.place as usize] {
            Place::Folder(path) | Place::Archive { path, .. } | Place::Parts { path, .. } => path.join(self.name(item)),
        }
    }

    /// Size and time of file `index`, if it lies in a folder.
    pub(crate) fn stamp(&self, index: u64) -> Option<Stamp> {
        let item = self.items.get(index as usize)?;
        match &self.places[item.place as usize] {
            Place::Folder(path) => path.join(self.name(item)).metadata().ok().map(|metadata| Stamp::of(&metadata)),
            Place::Archive { .. } | Place::Parts { .. } => None,
        }
    }

    /// Reads file `index` unchanged, with its label and name.
    pub(crate) fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let item = &self.items[index as usize];
        // The conversion finds out format and size: see `Sample`.
        (sample.format, sample.height, sample.width, sample.channels) = (Format::Jpeg, 0, 0, 0);
        sample.labels.clear();
        match &self.sets {
            None => sample.label = item.label,
            Some(sets) => sample.labels.extend_from_slice(sets.get(item.label as usize)),
        }
        sample.filename.clear();
        sample.filename.push_str(self.name(item));
        sample.encoded.clear();
        let length = self.read_bytes(item, &mut sample.encoded).map_err(|e| Error::io("read", &self.path(index), e))?;
        if length > MAX_FILE {
            let what = format!("more than {MAX_FILE} bytes, the limit of an image file");
            return Err(Error::input(&self.path(index), what));
        }
        Ok(())
    }

    /// Reads a file into the empty `out`; returns its size, which may be above the limit: then `out` is not all of it.
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

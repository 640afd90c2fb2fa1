//! The image files of one split, listed once and then read in any order: as files of folders, or as members of
//! tar archives at their offsets. Some 70 bytes a file are kept.

use crate::error::Error;
use crate::source::Sample;
use loaders::Format;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The largest image file that is read.
const MAX_FILE: u64 = 1 << 29;

/// Where files lie.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In a folder.
    Folder(PathBuf),
    /// In an archive with the path that messages name; without `file`, that path is opened for each read (folders of
    /// a thousand archives are more than a process may hold open).
    Archive {
        /// The archive, or the member of another one that it is.
        path: PathBuf,
        /// The file that holds it.
        file: Option<Arc<File>>,
    },
}

/// One file.
#[derive(Debug, Clone, Copy)]
struct Item {
    place: u32,
    label: u32,
    /// Its name: start in `names`, length.
    name: (u64, u32),
    /// In an archive: offset, size.
    range: (u64, u64),
}

/// The files of one split with their labels.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    places: Vec<Place>,
    names: String,
    items: Vec<Item>,
}

impl Listing {
    /// A place for the files that follow.
    pub(crate) fn place(&mut self, place: Place) {
        self.places.push(place);
    }

    /// Adds a file at the latest place; `range` is its offset and size in an archive.
    pub(crate) fn push(&mut self, name: &str, label: u32, range: (u64, u64)) {
        let place = (self.places.len().saturating_sub(1)) as u32;
        self.items.push(Item { place, label, name: (self.names.len() as u64, name.len() as u32), range });
        self.names.push_str(name);
    }

    /// Number of files.
    pub(crate) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    /// The label of each file.
    pub(crate) fn labels(&self) -> impl Iterator<Item = u32> {
        self.items.iter().map(|i| i.label)
    }

    /// The files for which `other` is true move to a listing of their own; the order stays.
    pub(crate) fn split_off(&mut self, other: &[bool]) -> Listing {
        let mut taken = Listing { places: self.places.clone(), names: self.names.clone(), items: Vec::new() };
        let mut left = Vec::new();
        for (item, &goes) in self.items.iter().zip(other) {
            if goes { taken.items.push(*item) } else { left.push(*item) }
        }
        self.items = left;
        taken
    }

    /// A checksum over names, labels and places in archives, continued from `seed`.
    pub(crate) fn digest(&self, seed: u32) -> u32 {
        self.items.iter().fold(seed, |crc, item| {
            let crc = crc32c::crc32c_append(crc, self.name(item).as_bytes());
            let crc = crc32c::crc32c_append(crc, &item.label.to_le_bytes());
            let crc = crc32c::crc32c_append(crc, &item.range.0.to_le_bytes());
            crc32c::crc32c_append(crc, &item.range.1.to_le_bytes())
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
            Place::Folder(path) | Place::Archive { path, .. } => path.join(self.name(item)),
        }
    }

    /// Reads file `index` as it is, with its label and name.
    pub(crate) fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let item = &self.items[index as usize];
        // The size is for the conversion to find out: see `Sample`.
        (sample.format, sample.height, sample.width, sample.channels) = (Format::Jpeg, 0, 0, 0);
        sample.label = item.label;
        sample.filename.clear();
        sample.filename.push_str(self.name(item));
        sample.encoded.clear();
        let failed = |e| Error::io("read", &self.path(index), e);
        let length = match &self.places[item.place as usize] {
            Place::Folder(path) => {
                let file = File::open(path.join(self.name(item))).map_err(failed)?;
                file.take(MAX_FILE + 1).read_to_end(&mut sample.encoded).map_err(failed)? as u64
            }
            Place::Archive { .. } if item.range.1 > MAX_FILE => item.range.1,
            Place::Archive { path, file } => {
                sample.encoded.resize(item.range.1 as usize, 0);
                let opened = file.is_none().then(|| File::open(path)).transpose().map_err(failed)?;
                if let Some(file) = file.as_deref().or(opened.as_ref()) {
                    file.read_exact_at(&mut sample.encoded, item.range.0).map_err(failed)?;
                }
                item.range.1
            }
        };
        if length > MAX_FILE {
            return Err(Error::input(
                &self.path(index),
                format!("more than {MAX_FILE} bytes, the limit of an image file"),
            ));
        }
        Ok(())
    }
}

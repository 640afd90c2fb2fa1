//! All samples of one split. A sample's id is its index in dataset.json's order of shards and, within them, records.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::fault::Fault;
use crate::format::example::{self, Example};
use crate::format::manifest::{Manifest, ShardManifest, SplitManifest};
use crate::storage::shard::{Access, Shard};

/// All samples of one split.
#[derive(Debug)]
pub struct Split {
    name: String,
    dir: PathBuf,
    classes: Arc<[String]>,
    multi_label: bool,
    label_offset: i64,
    shards: Vec<ShardManifest>,
    /// The manifest's least and greatest height and width, where it has them.
    sizes: Option<[[u32; 2]; 2]>,
    /// The shards mapped so far; they stay mapped.
    mapped: Vec<OnceLock<Shard>>,
    /// Id of each shard's first sample, then the number of samples.
    starts: Vec<u64>,
}

impl Split {
    /// A split of the data set in `dir`; no shard is opened yet.
    pub(crate) fn new(name: &str, dir: &Path, dataset: &Manifest, split: &SplitManifest) -> Self {
        let mut starts = vec![0];
        split.shards.iter().for_each(|shard| starts.push(starts[starts.len() - 1] + shard.count));
        Self {
            name: name.to_owned(),
            dir: dir.to_owned(),
            classes: dataset.classes.clone().into(),
            multi_label: dataset.multi_label,
            label_offset: dataset.label_offset,
            mapped: split.shards.iter().map(|_| OnceLock::new()).collect(),
            shards: split.shards.clone(),
            sizes: split.sizes,
            starts,
        }
    }

    /// The split's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The manifest's entries of the shards, in order of ids.
    pub fn shards(&self) -> &[ShardManifest] {
        &self.shards
    }

    /// Least height and width, and greatest ones, of the files as they are stored, where the manifest has them.
    pub(crate) fn sizes(&self) -> Option<[[u32; 2]; 2]> {
        self.sizes
    }

    /// Bytes of all shards.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes).sum()
    }

    /// The folder of the shards.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A shard by its number, mapped and checked at its first use.
    ///
    /// # Panics
    /// If there is no shard of that number.
    pub fn shard(&self, number: usize) -> Result<&Shard, Error> {
        match self.mapped_shard(number) {
            Some(shard) => Ok(shard),
            None => {
                let shard = self.open(number, Access::Map)?;
                // if two threads open a shard at once, the first one's is kept
                Ok(self.mapped[number].get_or_init(|| shard))
            }
        }
    }

    /// A shard by its number, if it is mapped already.
    pub(crate) fn mapped_shard(&self, number: usize) -> Option<&Shard> {
        self.mapped[number].get()
    }

    /// Opens a shard for the caller alone and compares it with the manifest.
    pub(crate) fn open(&self, number: usize, access: Access) -> Result<Shard, Error> {
        let expected = &self.shards[number];
        let path = self.dir.join(&expected.file);
        let differs = |what, expected, got| Error::Shard { path: path.clone(), what, expected, got };
        // before the index is read: the size is the clearer message for a shard that was cut short
        let bytes = fs::metadata(&path).map_err(Error::io("open", &path))?.len();
        if bytes != expected.bytes {
            return Err(differs("bytes", expected.bytes, bytes));
        }
        let shard = Shard::open_for(&path, access)?;
        match shard.len() {
            count if count == expected.count => Ok(shard),
            count => Err(differs("records", expected.count, count)),
        }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Names of the classes, in order of labels.
    pub fn class_names(&self) -> &[String] {
        &self.classes
    }

    /// Whether images may have several classes, or none.
    pub fn multi_label(&self) -> bool {
        self.multi_label
    }

    /// The number of the shard that holds a sample, and the record's number in it.
    pub fn locate(&self, id: u64) -> Result<(usize, u64), Error> {
        if id >= self.len() {
            return Err(Error::NoSample { split: self.name.clone(), id, len: self.len() });
        }
        // the last start that is not above `id`: shards without records are passed over
        let shard = self.starts.partition_point(|&start| start <= id) - 1;
        Ok((shard, id - self.starts[shard]))
    }

    /// A sample and its label, 0 to `classes() - 1`; of several the first one, and 0 if there is none: see [`Split::classes_of`]. Checksums
    /// are verified; `copy` is as for [`Shard::record`].
    pub fn record<'a>(&'a self, id: u64, copy: &'a mut Vec<u8>) -> Result<(Example<'a>, u32), Error> {
        let (shard, number) = self.locate(id)?;
        let shard = self.shard(shard)?;
        self.read(shard, number, shard.record(number, copy)?)
    }

    /// The example and label in `payload`, which is record `number` of `shard`.
    pub(crate) fn read<'a>(&self, shard: &Shard, number: u64, payload: &'a [u8]) -> Result<(Example<'a>, u32), Error> {
        example::parse(payload)
            .map_err(Fault::from)
            .and_then(|example| Ok((example, self.first_class(&example)?)))
            .map_err(|fault| shard.fault(number, fault))
    }

    /// The error for a fault of sample `id`.
    pub fn fault(&self, id: u64, fault: Fault) -> Error {
        match self.locate(id).and_then(|(shard, number)| Ok((self.shard(shard)?, number))) {
            Ok((shard, number)) => shard.fault(number, fault),
            Err(error) => error,
        }
    }

    /// The classes of an image, as stored: where images have one, just that one.
    ///
    /// # Errors
    /// For a label that is no class, and where images have one, another number of labels.
    pub fn classes_of(&self, example: &Example<'_>) -> Result<Vec<u32>, Fault> {
        match (example.labels.is_list(), self.multi_label) {
            (false, _) => Ok(vec![self.label(example.label)?]),
            (true, true) => example.labels.iter().map(|stored| self.label(stored)).collect(),
            (true, false) => Err(Fault::Labels { count: example.labels.iter().count() }),
        }
    }

    /// The names of an image's classes, for people: parted by "; ", and "no label" where there is none.
    ///
    /// # Errors
    /// As [`Split::classes_of`].
    pub fn class_text(&self, example: &Example<'_>) -> Result<String, Fault> {
        let classes = self.classes_of(example)?;
        let names: Vec<&str> = classes.iter().map(|class| self.classes[*class as usize].as_str()).collect();
        Ok(if names.is_empty() { "no label".into() } else { names.join("; ") })
    }

    /// The first class of an image; 0 if it has none. All are checked.
    pub(super) fn first_class(&self, example: &Example<'_>) -> Result<u32, Fault> {
        match example.labels.is_list() {
            false => self.label(example.label),
            true => Ok(self.classes_of(example)?.first().copied().unwrap_or(0)),
        }
    }

    /// The class of a stored label.
    pub(super) fn label(&self, stored: i64) -> Result<u32, Fault> {
        let label = i128::from(stored) - i128::from(self.label_offset);
        u32::try_from(label).ok().filter(|&label| (label as usize) < self.classes.len()).ok_or(Fault::Label {
            stored,
            offset: self.label_offset,
            label,
            last: self.classes.len() as i64 - 1,
        })
    }
}

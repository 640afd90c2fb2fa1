//! Data sets and their splits: `dataset.json` with its shards, all samples of a split, their labels, and the shapes of their images.
//! A sample's id is its index in dataset.json's order of shards and, within them, records.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::decode::{self, Exif};
use crate::error::Error;
use crate::fault::Fault;
use crate::format::example::{self, Example};
use crate::format::record::HEADER;
use crate::spec::{ImageSpec, Images};
use crate::storage::shard::{Access, Shard};
use crate::threads::on_threads;

pub use crate::format::manifest::{MANIFEST, Manifest, ShardManifest, SplitManifest, VERSION};

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

/// Bytes of a record that are read for its label; where the label stands behind them, all of it is.
const HEAD: usize = 1024;

impl Split {
    /// The label of each sample, by id; of several the first. With `skip`, none for a record that has no valid one; else that ends it.
    /// Checksums are verified only of records that are read as a whole.
    pub fn labels(&self, skip: bool, threads: usize) -> Result<Vec<Option<u32>>, Error> {
        let (failed, found) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let numbers = (0..self.shards().len()).take_while(|_| !failed.load(Ordering::Relaxed));
        on_threads(threads.min(self.shards().len()), numbers, |number| {
            let labels = self.labels_of(number, skip);
            failed.fetch_or(labels.is_err(), Ordering::Relaxed);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((number, labels));
        });
        let mut parts = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_by_key(|part| part.0);
        let all: Vec<Vec<Option<u32>>> = parts.into_iter().map(|part| part.1).collect::<Result<_, _>>()?;
        Ok(all.concat())
    }

    fn labels_of(&self, number: usize, skip: bool) -> Result<Vec<Option<u32>>, Error> {
        let shard = self.open(number, Access::Records)?;
        let mut bytes = Vec::new();
        let label = |record| match self.label_of(&shard, record, &mut bytes) {
            Ok(label) => Ok(Some(label)),
            Err(Error::Record { .. }) if skip => Ok(None),
            Err(error) => Err(error),
        };
        (0..shard.len()).map(label).collect()
    }

    fn label_of(&self, shard: &Shard, record: u64, bytes: &mut Vec<u8>) -> Result<u32, Error> {
        let [from, to] = [record, record + 1].map(|number| shard.offset(number).unwrap_or(0));
        let head = usize::try_from(to - from).unwrap_or(usize::MAX).min(HEADER + HEAD);
        shard.read_at(bytes, head, from)?;
        let label = match bytes.get(HEADER..).and_then(example::label) {
            Some(stored) => self.label(stored),
            None => {
                let payload = shard.record(record, bytes)?;
                example::parse(payload).map_err(Fault::from).and_then(|example| self.first_class(&example))
            }
        };
        label.map_err(|fault| shard.fault(record, fault))
    }
}

/// The most images whose headers are read.
const SAMPLES: u64 = 64;

impl Split {
    /// The shapes of the images, from at most 64 of them, spread evenly: one size, or various sizes. They are various, too, where
    /// dataset.json says that they differ: a few odd ones among many would not be among the 64.
    ///
    /// The answer is for plans and early errors; code that needs one size checks each image. Unreadable samples are skipped unless all
    /// of the 64 are.
    pub fn images(&self) -> Result<Images, Error> {
        self.images_as(Exif::Applied)
    }

    /// [`Split::images`] for lists of transforms that turn images or do not.
    pub fn images_as(&self, exif: Exif) -> Result<Images, Error> {
        let mut found = self.shape(0, exif).map(Images::Fixed);
        for id in self.sampled_ids() {
            if let Ok(spec) = self.shape(id, exif) {
                found = Ok(found.map_or(Images::Fixed(spec), |images| common(images, spec)));
            }
        }
        let differ = |spec: ImageSpec| self.sizes().is_some_and(|sizes| tells_apart(sizes, spec, exif));
        found.map(|images| match images {
            Images::Fixed(spec) if differ(spec) => Images::Varied { channels: spec.channels },
            other => other,
        })
    }

    /// The shape of all images, from the same sample alone: it is for messages that name an image.
    ///
    /// # Errors
    /// Names the first image that differs from those before it.
    pub fn one_size(&self) -> Result<ImageSpec, Error> {
        let first = self.shape(0, Exif::Applied)?;
        for id in self.sampled_ids() {
            let got = self.shape(id, Exif::Applied)?;
            if (got.height, got.width) != (first.height, first.width) {
                return Err(self.fault(id, Fault::Odd { first, got }));
            }
        }
        Ok(first)
    }

    /// The sampled ids after the first.
    fn sampled_ids(&self) -> impl Iterator<Item = u64> {
        let len = self.len();
        let samples = len.min(SAMPLES);
        (1..samples).map(move |i| (u128::from(i) * u128::from(len) / u128::from(samples)) as u64)
    }

    /// The shape of one image, by its header. A shard that is opened only for this is closed again.
    fn shape(&self, id: u64, exif: Exif) -> Result<ImageSpec, Error> {
        let (number, record) = self.locate(id)?;
        let own;
        let shard = match self.mapped_shard(number) {
            Some(shard) => shard,
            None => {
                own = self.open(number, Access::Map)?;
                &own
            }
        };
        let mut copy = Vec::new();
        let (example, _) = self.read(shard, record, shard.record(record, &mut copy)?)?;
        decode::spec_as(&example, exif).map_err(|fault| shard.fault(record, fault))
    }
}

/// Whether images whose least and greatest stored sizes are these have other sizes than `seen`, which a few of them have. Stored sizes are
/// those before turning: images of one size, some of which were stored lying and some standing, differ in them, too.
fn tells_apart([least, greatest]: [[u32; 2]; 2], seen: ImageSpec, exif: Exif) -> bool {
    let (short, long) = (seen.height.min(seen.width), seen.height.max(seen.width));
    let is_turned = exif == Exif::Applied && (least, greatest) == ([short; 2], [long; 2]);
    least != greatest && !is_turned
}

/// The shapes of images like `images` together with one of shape `spec`.
fn common(images: Images, spec: ImageSpec) -> Images {
    // among coloured images, grey ones count as coloured
    let channels = images.channels().max(spec.channels);
    match images {
        Images::Fixed(first) if (first.height, first.width) == (spec.height, spec.width) => {
            Images::Fixed(ImageSpec { channels, ..spec })
        }
        _ => Images::Varied { channels },
    }
}

/// A folder with its manifest.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The folder.
    pub dir: PathBuf,
    /// Its `dataset.json`.
    pub manifest: Manifest,
}

impl Dataset {
    /// Reads the manifest; shards are opened by [`Dataset::split`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref().to_owned();
        let manifest = Manifest::read(&dir)?;
        Ok(Self { dir, manifest })
    }

    /// Opens and maps all shards of a split and checks sizes, indexes and counts against the manifest.
    pub fn split(&self, name: &str) -> Result<Split, Error> {
        let split = self.split_lazily(name)?;
        (0..split.shards().len()).try_for_each(|number| split.shard(number).map(drop))?;
        Ok(split)
    }

    /// The same, but each shard is opened and checked when it is first used: for orders in which a rank needs few of them.
    pub fn split_lazily(&self, name: &str) -> Result<Split, Error> {
        let split = self.manifest.splits.get(name).ok_or_else(|| Error::UnknownSplit {
            dir: self.dir.clone(),
            name: name.to_owned(),
            known: self.known_splits(),
        })?;
        Ok(Split::new(name, &self.dir, &self.manifest, split))
    }

    fn known_splits(&self) -> String {
        let names: Vec<_> = self.manifest.splits.keys().map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_turning_explains_are_one_size() {
        let seen = ImageSpec::new(60, 90, 3);
        let differ = |sizes, exif| tells_apart(sizes, seen, exif);
        assert!(differ([[60, 90], [60, 91]], Exif::Applied) && !differ([[60, 90], [60, 90]], Exif::Applied));
        assert!(!differ([[60, 60], [90, 90]], Exif::Applied) && differ([[60, 60], [90, 90]], Exif::Ignored));
    }
}

//! Data sets and splits: reads `dataset.json`, opens the shards of a split, finds samples and labels by sample id, and
//! determines the image sizes. A sample's id is its index in the order of `dataset.json`: shard by shard, record by
//! record.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::decode::{self, Exif};
use crate::error::Error;
use crate::fault::Fault;
use crate::format::example::{self, Example};
use crate::format::record::HEADER;
use crate::label_sets::LabelKind;
use crate::spec::{ImageSpec, Images};
use crate::storage::shard::{Access, Shard};
use crate::threads::on_threads;

pub use crate::format::manifest::{MANIFEST, Manifest, ShardManifest, SplitManifest, Target, VERSION};

/// All samples of a split, and the shards that contain them.
#[derive(Debug)]
pub struct Split {
    name: String,
    dir: PathBuf,
    /// The classes, or the targets if the labels are numbers.
    outputs: Arc<[String]>,
    label_kind: LabelKind,
    label_offset: i64,
    shards: Vec<ShardManifest>,
    /// Smallest and largest height and width, as (height, width) pairs, if the manifest has them.
    sizes: Option<[[u32; 2]; 2]>,
    /// Shards are mapped on first use and stay mapped.
    mapped: Vec<OnceLock<Shard>>,
    /// Id of each shard's first sample, followed by the number of samples.
    starts: Vec<u64>,
}

impl Split {
    /// Creates the split without opening any shard.
    pub(crate) fn new(name: &str, dir: &Path, dataset: &Manifest, split: &SplitManifest) -> Self {
        let mut starts = vec![0];
        split.shards.iter().for_each(|shard| starts.push(starts[starts.len() - 1] + shard.count));
        Self {
            name: name.to_owned(),
            dir: dir.to_owned(),
            outputs: dataset.outputs().into(),
            label_kind: dataset.label_kind(),
            label_offset: dataset.label_offset,
            mapped: split.shards.iter().map(|_| OnceLock::new()).collect(),
            shards: split.shards.clone(),
            sizes: split.sizes,
            starts,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the shards' manifest entries, in the order of sample ids.
    pub fn shards(&self) -> &[ShardManifest] {
        &self.shards
    }

    /// Returns the smallest and largest (height, width) of the stored images, before EXIF rotation. `None` if the
    /// manifest does not have them.
    pub(crate) fn sizes(&self) -> Option<[[u32; 2]; 2]> {
        self.sizes
    }

    /// Returns the total size of all shards in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes).sum()
    }

    /// Returns the directory that contains the shards.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the shard with this number. The first call for a shard maps it and checks it against the manifest.
    ///
    /// # Panics
    ///
    /// Panics if there is no shard with this number.
    pub fn shard(&self, number: usize) -> Result<&Shard, Error> {
        match self.mapped_shard(number) {
            Some(shard) => Ok(shard),
            None => {
                let shard = self.open(number, Access::Map)?;
                // If two threads open the same shard at once, both use the one that is stored first.
                Ok(self.mapped[number].get_or_init(|| shard))
            }
        }
    }

    /// Returns the shard with this number if it is already mapped.
    pub(crate) fn mapped_shard(&self, number: usize) -> Option<&Shard> {
        self.mapped[number].get()
    }

    /// Opens a shard without storing it in the split, and checks its size and record count against the manifest.
    pub(crate) fn open(&self, number: usize, access: Access) -> Result<Shard, Error> {
        let expected = &self.shards[number];
        let path = self.dir.join(&expected.file);
        let differs = |what, expected, got| Error::Shard { path: path.clone(), what, expected, got };
        // Check the size before the index is read: for a truncated shard, a wrong size is the clearer message.
        let bytes = fs::metadata(&path).map_err(Error::io("open", &path))?.len();
        if bytes != expected.bytes {
            return Err(differs("bytes", expected.bytes, bytes));
        }
        let shard = Shard::open(&path, access)?;
        match shard.len() {
            count if count == expected.count => Ok(shard),
            count => Err(differs("records", expected.count, count)),
        }
    }

    /// Returns the number of outputs that a network needs: classes, or targets if the labels are numbers.
    pub fn classes(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the class names, where the index is the label. If the labels are numbers, returns the target names.
    pub fn class_names(&self) -> &[String] {
        &self.outputs
    }

    /// Returns the label kind.
    pub fn label_kind(&self) -> LabelKind {
        self.label_kind
    }

    /// Returns true if an image may have any number of classes, including zero.
    pub fn multi_label(&self) -> bool {
        self.label_kind == LabelKind::Classes
    }

    /// Returns the shard number of a sample and the record number within that shard.
    pub fn locate(&self, id: u64) -> Result<(usize, u64), Error> {
        if id >= self.len() {
            return Err(Error::NoSample { split: self.name.clone(), id, len: self.len() });
        }
        // Find the last start that is not above `id`. This skips shards without records.
        let shard = self.starts.partition_point(|&start| start <= id) - 1;
        Ok((shard, id - self.starts[shard]))
    }

    /// Reads a sample and its label, which is in `0..classes()`. If the image has multiple labels, the first is
    /// returned. If it has no label, or if the labels are numbers, 0 is returned (see [`Split::classes_of`]). Verifies
    /// the checksums. `copy` is a buffer as for [`Shard::record`].
    pub fn record<'a>(&'a self, id: u64, copy: &'a mut Vec<u8>) -> Result<(Example<'a>, u32), Error> {
        let (shard, number) = self.locate(id)?;
        let shard = self.shard(shard)?;
        self.read(shard, number, shard.record(number, copy)?)
    }

    /// Parses `payload`, which is record `number` of `shard`, into its example and label.
    pub(crate) fn read<'a>(&self, shard: &Shard, number: u64, payload: &'a [u8]) -> Result<(Example<'a>, u32), Error> {
        example::parse(payload)
            .map_err(Fault::from)
            .and_then(|example| Ok((example, self.first_class(&example)?)))
            .map_err(|fault| shard.fault(number, fault))
    }

    /// Converts a fault of sample `id` into an error that names the file and the record.
    pub fn fault(&self, id: u64, fault: Fault) -> Error {
        match self.locate(id).and_then(|(shard, number)| Ok((self.shard(shard)?, number))) {
            Ok((shard, number)) => shard.fault(number, fault),
            Err(error) => error,
        }
    }

    /// Returns an image's classes in stored order: exactly one class for a single-label data set, and no classes if the
    /// labels are numbers.
    ///
    /// # Errors
    ///
    /// Returns an error if a label is not a valid class, or if a single-label data set has an image with a list of
    /// labels.
    pub fn classes_of(&self, example: &Example<'_>) -> Result<Vec<u32>, Fault> {
        match (example.labels.is_list(), self.label_kind) {
            (_, LabelKind::Numbers) => Ok(Vec::new()),
            (false, _) => Ok(vec![self.label(example.label)?]),
            (true, LabelKind::Classes) => example.labels.iter().map(|stored| self.label(stored)).collect(),
            (true, LabelKind::OneClass) => Err(Fault::Labels { count: example.labels.iter().count() }),
        }
    }

    /// Returns an image's number for each target. Empty if the labels are classes.
    ///
    /// # Errors
    ///
    /// Returns an error if the record does not have a finite number for each target.
    pub fn targets_of(&self, example: &Example<'_>) -> Result<Vec<f32>, Fault> {
        if self.label_kind != LabelKind::Numbers {
            return Ok(Vec::new());
        }
        let found: Vec<f32> = example.targets.values().take(1 + self.classes()).collect();
        let wrong = |got: String| Err(Fault::Targets { expected: self.classes(), got });
        match found.iter().find(|value| !value.is_finite()) {
            _ if found.len() > self.classes() => wrong("more".into()),
            _ if found.len() < self.classes() => wrong(found.len().to_string()),
            Some(value) => wrong(value.to_string()),
            None => Ok(found),
        }
    }

    /// Returns an image's labels for display: its class names, or the names and values of its targets. They are
    /// separated by `"; "`. Returns "no label" if labels are classes and the image has no label.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Split::classes_of`] and [`Split::targets_of`].
    pub fn class_text(&self, example: &Example<'_>) -> Result<String, Fault> {
        if self.label_kind == LabelKind::Numbers {
            let numbers = self.targets_of(example)?;
            let each = self.outputs.iter().zip(numbers).map(|(name, number)| format!("{name} {number}"));
            return Ok(each.collect::<Vec<_>>().join("; "));
        }
        let classes = self.classes_of(example)?;
        let names: Vec<&str> = classes.iter().map(|class| self.outputs[*class as usize].as_str()).collect();
        Ok(if names.is_empty() { "no label".into() } else { names.join("; ") })
    }

    /// Returns the first class of an image, or 0 if it has no class. All labels are checked.
    pub(super) fn first_class(&self, example: &Example<'_>) -> Result<u32, Fault> {
        match example.labels.is_list() {
            _ if self.label_kind == LabelKind::Numbers => Ok(0),
            false => self.label(example.label),
            true => Ok(self.classes_of(example)?.first().copied().unwrap_or(0)),
        }
    }

    /// Converts a stored label to a class index.
    pub(super) fn label(&self, stored: i64) -> Result<u32, Fault> {
        let label = i128::from(stored) - i128::from(self.label_offset);
        u32::try_from(label).ok().filter(|&label| (label as usize) < self.outputs.len()).ok_or(Fault::Label {
            stored,
            offset: self.label_offset,
            label,
            last: self.outputs.len() as i64 - 1,
        })
    }
}

/// Number of payload bytes that are read to find a label. If the label is not within them, the whole record is read.
const HEAD: usize = 1024;

impl Split {
    /// Returns the label of each sample by id. If a sample has multiple labels, this is the first one.
    ///
    /// With `skip`, the entry of a record without a valid label is `None`. Without `skip`, such a record is an error.
    /// Checksums are verified only for records that are read completely.
    pub fn labels(&self, skip: bool, threads: usize) -> Result<Vec<Option<u32>>, Error> {
        let failed = AtomicBool::new(false);
        let mut parts: Vec<_> = self.shards().iter().map(|_| None).collect();
        let open = parts.iter_mut().enumerate().take_while(|_| !failed.load(Ordering::Relaxed));
        on_threads(threads.min(self.shards().len()), open, |(number, part)| {
            let labels = self.labels_of(number, skip);
            failed.fetch_or(labels.is_err(), Ordering::Relaxed);
            *part = Some(labels);
        });
        // After an error, some shards have no result.
        Ok(parts.into_iter().flatten().collect::<Result<Vec<_>, _>>()?.concat())
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

/// Maximum number of images examined to determine the image size.
const SAMPLES: u64 = 64;

impl Split {
    /// Determines from at most 64 images, spread evenly over the split, whether all images have the same size. The
    /// result is also `Images::Varied` if `dataset.json` says that sizes differ, because 64 images can miss a few
    /// exceptions.
    ///
    /// The result is for plans and early errors. Code that needs a fixed size must check each image. Unreadable samples
    /// are skipped unless all examined samples are unreadable.
    pub fn images(&self) -> Result<Images, Error> {
        self.images_as(Exif::Applied)
    }

    /// Works like [`Split::images`], with or without EXIF rotation applied.
    pub fn images_as(&self, exif: Exif) -> Result<Images, Error> {
        let mut found = self.shape(0, exif).map(Images::Fixed);
        for id in self.sampled_ids() {
            if let Ok(spec) = self.shape(id, exif) {
                found = Ok(found.map_or(Images::Fixed(spec), |images| combine(images, spec)));
            }
        }
        let differ = |spec: ImageSpec| self.sizes().is_some_and(|sizes| sizes_differ(sizes, spec, exif));
        found.map(|images| match images {
            Images::Fixed(spec) if differ(spec) => Images::Varied { channels: spec.channels },
            other => other,
        })
    }

    /// Returns the common size of all images, judged from the same images as [`Split::images`] but ignoring the
    /// manifest, so that the error can name an image.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first examined image with a different size.
    pub fn one_size(&self) -> Result<ImageSpec, Error> {
        let first = self.shape(0, Exif::Applied)?;
        for id in self.sampled_ids() {
            let got = self.shape(id, Exif::Applied)?;
            if (got.height, got.width) != (first.height, first.width) {
                return Err(self.fault(id, Fault::DifferentSize { first, got }));
            }
        }
        Ok(first)
    }

    /// Returns the ids of the examined samples without sample 0.
    fn sampled_ids(&self) -> impl Iterator<Item = u64> {
        let len = self.len();
        let samples = len.min(SAMPLES);
        (1..samples).map(move |i| (u128::from(i) * u128::from(len) / u128::from(samples)) as u64)
    }

    /// Reads the size of an image from its header. A shard that is opened only for this is closed again.
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

/// Returns true if the stored sizes `least` to `greatest` mean that not all images have the size `seen`, which was
/// found in the examined images.
///
/// Stored sizes are sizes before EXIF rotation. If images of the same size are stored partly in landscape and partly in
/// portrait orientation, their stored sizes differ although the rotated images have the same size. This case returns
/// false.
fn sizes_differ([least, greatest]: [[u32; 2]; 2], seen: ImageSpec, exif: Exif) -> bool {
    let (short, long) = (seen.height.min(seen.width), seen.height.max(seen.width));
    let is_turned = exif == Exif::Applied && (least, greatest) == ([short; 2], [long; 2]);
    least != greatest && !is_turned
}

/// Extends `images` to include another image of shape `spec`.
fn combine(images: Images, spec: ImageSpec) -> Images {
    // If a data set has colour and grey images, grey images are treated as colour images.
    let channels = images.channels().max(spec.channels);
    match images {
        Images::Fixed(first) if (first.height, first.width) == (spec.height, spec.width) => {
            Images::Fixed(ImageSpec { channels, ..spec })
        }
        _ => Images::Varied { channels },
    }
}

/// A data set directory and its manifest.
#[derive(Debug, Clone)]
pub struct Dataset {
    pub dir: PathBuf,
    /// The contents of `dataset.json`.
    pub manifest: Manifest,
}

impl Dataset {
    /// Reads the manifest. [`Dataset::split`] opens the shards.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref().to_owned();
        let manifest = Manifest::read(&dir)?;
        Ok(Self { dir, manifest })
    }

    /// Opens and maps all shards of a split, and checks their sizes, indexes and record counts against the manifest.
    pub fn split(&self, name: &str) -> Result<Split, Error> {
        let split = self.split_lazily(name)?;
        (0..split.shards().len()).try_for_each(|number| split.shard(number).map(drop))?;
        Ok(split)
    }

    /// Works like [`Dataset::split`], but each shard is opened and checked on first use. Use this if a rank needs only
    /// a few of the shards.
    pub fn split_lazily(&self, name: &str) -> Result<Split, Error> {
        let split = self.manifest.split(&self.dir, name)?;
        Ok(Split::new(name, &self.dir, &self.manifest, split))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_differ_only_by_rotation_count_as_equal() {
        let seen = ImageSpec::new(60, 90, 3);
        let differ = |sizes, exif| sizes_differ(sizes, seen, exif);
        assert!(differ([[60, 90], [60, 91]], Exif::Applied) && !differ([[60, 90], [60, 90]], Exif::Applied));
        assert!(!differ([[60, 60], [90, 90]], Exif::Applied) && differ([[60, 60], [90, 90]], Exif::Ignored));
    }
}

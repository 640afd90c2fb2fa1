//! The trait of a data set that can be converted: named splits, class names, and any sample by its index.

use crate::error::Error;
use loaders::example::BoxLists;
use loaders::text::push_decimal;
use loaders::{Example, Format};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// One named part of a source, such as `train`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSplit {
    /// Name of the split in `dataset.json` and in the shards' names.
    pub name: String,
    /// Number of samples.
    pub len: u64,
}

/// Samples that are stored together and read together, block after block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// Samples of each block; they follow each other.
    pub lengths: Vec<u64>,
    /// Blocks whose samples may be mixed, since a source keeps so many.
    pub together: usize,
}

/// Size and time of modification of a file: with the same ones it holds the same, as far as can be told without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Bytes.
    pub bytes: u64,
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: i64,
}

impl Stamp {
    /// Of a file.
    pub(crate) fn of(file: &Metadata) -> Self {
        Stamp { bytes: file.len(), seconds: file.mtime(), nanoseconds: file.mtime_nsec() }
    }
}

/// One image with its label; reused from sample to sample so that its buffers grow once.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The payload: bytes in the order H, W, C for [`Format::Raw`], else a whole PNG or JPEG file.
    pub encoded: Vec<u8>,
    /// The format of `encoded`; of a file the conversion finds it out by the first bytes.
    pub format: Format,
    /// Rows; 0 in a sample that holds a file, whose header the conversion reads.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Bytes of a pixel: 1 grey, 3 RGB.
    pub channels: u32,
    /// Class, an index into [`Source::classes`].
    pub label: u32,
    /// Classes, ascending, of a source whose images may have several; `label` does not count then.
    pub labels: Vec<u32>,
    /// Where the image comes from, for people; stored with the record.
    pub filename: String,
    /// Boxes of objects in the image; stored with the record.
    pub boxes: BoxLists,
    /// Entry points of a JPEG file, which the conversion makes; empty if there are none.
    pub entry_points: Vec<u8>,
}

impl Sample {
    /// An empty sample to be filled by [`Source::sample`].
    pub fn new() -> Self {
        Sample {
            encoded: Vec::new(),
            format: Format::Raw,
            height: 0,
            width: 0,
            channels: 0,
            label: 0,
            labels: Vec::new(),
            filename: String::new(),
            boxes: BoxLists::default(),
            entry_points: Vec::new(),
        }
    }

    /// Makes its file name that of sample `number` of a file or split of many: `NAME#NUMBER`.
    pub(crate) fn name(&mut self, name: &str, number: u64) {
        self.filename.clear();
        self.filename.push_str(name);
        self.filename.push('#');
        push_decimal(number, &mut self.filename);
    }

    /// The record of the sample; `text` is the name of its class, `offset` the first label.
    pub(crate) fn example<'a>(&'a self, text: &'a str, offset: i64) -> Example<'a> {
        Example {
            encoded: &self.encoded,
            format: self.format,
            height: self.height,
            width: self.width,
            channels: self.channels,
            label: i64::from(self.label) + offset,
            labels: Default::default(),
            text,
            filename: &self.filename,
            boxes: self.boxes.boxes(),
            entry_points: &self.entry_points,
        }
    }
}

impl Default for Sample {
    fn default() -> Self {
        Sample::new()
    }
}

/// A data set to convert. Threads call [`Source::sample`] at the same time, in any order.
pub trait Source: Sync {
    /// The splits; the mean and deviation of `dataset.json` come from the one named `train`.
    fn splits(&self) -> &[SourceSplit];

    /// Class names; the position is the label.
    fn classes(&self) -> &[String];

    /// Whether images may have several classes, or none: [`Sample::labels`].
    fn multi_label(&self) -> bool {
        false
    }

    /// The name of the class `label` in records; by default that of `classes`.
    fn text(&self, label: u32) -> &str {
        self.classes().get(label as usize).map_or("", String::as_str)
    }

    /// The WordNet id of the class `label`, where classes have one.
    fn synset(&self, _label: u32) -> Option<&str> {
        None
    }

    /// The first stored label.
    fn label_offset(&self) -> i64 {
        0
    }

    /// True if PNG files are stored as JPEGs.
    fn png_as_jpeg(&self) -> bool {
        false
    }

    /// The blocks of a split that are only fast to read together; `None` where every sample is read as fast as every other.
    fn blocks(&self, _split: usize) -> Option<Blocks> {
        None
    }

    /// A number that changes with the files and labels of a source whose conversion takes long: a conversion that was killed
    /// can then continue. With `None` it starts anew.
    fn fingerprint(&self) -> Option<u32> {
        None
    }

    /// What tells whether the file of a sample is another one than at an earlier attempt; `None` where no file holds this sample alone,
    /// or it cannot be looked at. Files that hold many samples count in [`Source::fingerprint`].
    fn stamp(&self, _split: usize, _index: u64) -> Option<Stamp> {
        None
    }

    /// Returns the total file size if many samples may share the same bytes. Returns `None` if each sample's bytes count separately.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// The file of a sample, for messages; empty where its `filename` is enough.
    fn place(&self, _split: usize, _index: u64) -> PathBuf {
        PathBuf::new()
    }

    /// A line for each part of the source that was left out, with the reason.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Returns a message for each skipped sample.
    fn skipped(&self) -> &[String] {
        &[]
    }

    /// Says that a sample will be read soon, so that its bytes can come into the processor's caches meanwhile; by default it does nothing.
    fn soon(&self, _split: usize, _index: u64) {}

    /// Fills `sample` with sample `index` (from 0, in the source's own order) of split number `split`.
    ///
    /// # Errors
    /// A sample that cannot be read, or that the source's format does not allow.
    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error>;
}

//! The trait [`Source`]: a data set that can be converted. It has named splits and class names, and returns any sample
//! by index.

use crate::error::Error;
use crate::raw::RawImage;
use crate::raw::values::Values;
use base::text::push_decimal;
use loaders::example::{BoxLists, FloatList, Labels};
use loaders::{Dtype, Example, Format, LabelKind};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A higher label is assumed not to be a class.
pub(crate) const MAX_CLASS: i64 = 1 << 20;

/// A split of a source, such as `train`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSplit {
    /// Name in `dataset.json` and in the file names of shards.
    pub name: String,
    pub len: u64,
}

/// The splits and classes of a source, and notes about data that is not converted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceInfo {
    /// The splits. The mean and standard deviation in `dataset.json` are measured on the split named `train`.
    pub splits: Vec<SourceSplit>,
    /// Class names. A label is an index into this list. Empty if the source has targets.
    pub classes: Vec<String>,
    /// Names of the targets, in the order of [`Sample::targets`]. Empty if images have classes.
    pub targets: Vec<String>,
    /// A line with the reason for each part of the source that was left out.
    pub notes: Vec<String>,
    /// A message for each skipped sample.
    pub skipped: Vec<String>,
}

impl SourceInfo {
    /// Adds a split with `len` usable samples. Without any, adds a note instead and returns false. `what` names the
    /// samples.
    pub(crate) fn add_split(&mut self, name: &str, len: usize, what: &str) -> bool {
        match len {
            0 => self.notes.push(format!("split {name} left out: none of its {what} can be used")),
            _ => self.splits.push(SourceSplit { name: name.to_string(), len: len as u64 }),
        }
        len > 0
    }
}

/// The blocks of a source that is fast only if the samples of a block are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// Number of samples in each block. The blocks are consecutive.
    pub lengths: Vec<u64>,
    /// How many blocks may be mixed with each other. The source can keep this many in memory.
    pub together: usize,
}

/// Size and modification time of a file. If both are unchanged, the content is assumed to be unchanged too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub bytes: u64,
    /// Whole seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: i64,
}

impl Stamp {
    pub(crate) fn of(file: &Metadata) -> Self {
        Stamp { bytes: file.len(), seconds: file.mtime(), nanoseconds: file.mtime_nsec() }
    }
}

/// One image with its label. Callers reuse it for many samples, so its buffers rarely grow.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The image: pixels in (height, width, channels) order for [`Format::Raw`], otherwise a whole image file.
    pub encoded: Vec<u8>,
    /// The format of `encoded`. If `encoded` is an image file, the conversion detects the format from the first bytes.
    pub format: Format,
    /// Height in pixels. 0 if `encoded` is a file: the conversion then reads the header.
    pub height: u32,
    pub width: u32,
    /// Values per pixel: 1 for grey, 3 for RGB, any other number for other images.
    pub channels: u32,
    /// Value type in [`Format::Raw`]. Image files contain bytes.
    pub dtype: Dtype,
    /// Class as an index into [`Source::classes`].
    pub label: u32,
    /// All classes of the image in ascending order. Used instead of `label` if the source is multi-label.
    pub labels: Vec<u32>,
    /// A number for each target. Used instead of `label` if the source has targets.
    pub targets: FloatList,
    /// The origin of the image, stored with the record for people.
    pub filename: String,
    pub boxes: BoxLists,
    /// Entry points of a JPEG file, added by the conversion. Empty if there are none.
    pub entry_points: Vec<u8>,
}

impl Sample {
    /// Sets the file name to `NAME#NUMBER`, for sample `number` of a file or split with many samples.
    pub(crate) fn name(&mut self, name: &str, number: u64) {
        self.filename.clear();
        self.filename.push_str(name);
        self.filename.push('#');
        push_decimal(number, &mut self.filename);
    }

    /// Stores the pixels of `image`.
    pub(crate) fn set_image(&mut self, image: RawImage) {
        (self.format, self.dtype, self.encoded) = (Format::Raw, image.dtype, image.bytes);
        (self.height, self.width, self.channels) = (image.height, image.width, image.channels);
    }

    /// Returns the type and shape of the pixels.
    pub(crate) fn values(&self) -> Values {
        Values { dtype: self.dtype, channels: self.channels as usize, width: self.width as usize }
    }

    /// Returns the record for a sample with targets instead of a class.
    pub(crate) fn example_with_targets(&self) -> Example<'_> {
        Example { label: 0, labels: Labels::NONE, targets: self.targets.floats(), ..self.example("", 0) }
    }

    /// Returns the record of the sample. `text` is the name of its class, and `offset` is added to the label.
    pub(crate) fn example<'a>(&'a self, text: &'a str, offset: i64) -> Example<'a> {
        Example {
            encoded: &self.encoded,
            format: self.format,
            height: self.height,
            width: self.width,
            channels: self.channels,
            dtype: self.dtype,
            label: i64::from(self.label) + offset,
            labels: Default::default(),
            targets: Default::default(),
            text,
            filename: &self.filename,
            boxes: self.boxes.boxes(),
            entry_points: &self.entry_points,
        }
    }
}

/// An empty sample for [`Source::sample`] to fill.
impl Default for Sample {
    fn default() -> Self {
        Sample {
            encoded: Vec::new(),
            format: Format::Raw,
            height: 0,
            width: 0,
            channels: 0,
            dtype: Dtype::U8,
            label: 0,
            labels: Vec::new(),
            targets: FloatList::default(),
            filename: String::new(),
            boxes: BoxLists::default(),
            entry_points: Vec::new(),
        }
    }
}

/// A data set to convert. Several threads call [`Source::sample`] concurrently, in any order.
pub trait Source: Sync {
    /// Returns the splits, classes, targets and messages.
    fn info(&self) -> &SourceInfo;

    fn splits(&self) -> &[SourceSplit] {
        &self.info().splits
    }

    fn classes(&self) -> &[String] {
        &self.info().classes
    }

    fn targets(&self) -> &[String] {
        &self.info().targets
    }

    /// Returns the label kind. [`Sample`] has a field for each kind.
    fn label_kind(&self) -> LabelKind {
        if self.targets().is_empty() { LabelKind::OneClass } else { LabelKind::Numbers }
    }

    /// Returns the name of class `label` as stored in records. The default is the name in `classes`.
    fn text(&self, label: u32) -> &str {
        self.classes().get(label as usize).map_or("", String::as_str)
    }

    /// Returns the WordNet id of class `label`, if it has one.
    fn synset(&self, _label: u32) -> Option<&str> {
        None
    }

    /// Returns the value that records store for the first class.
    fn label_offset(&self) -> i64 {
        0
    }

    /// Returns true if PNG files should be stored as JPEGs.
    fn png_as_jpeg(&self) -> bool {
        false
    }

    /// Returns the blocks of a split if it is only fast to read block by block. `None` if all samples are equally fast
    /// to read in any order.
    fn blocks(&self, _split: usize) -> Option<Blocks> {
        None
    }

    /// Returns a hash of the source's files and labels. An interrupted conversion can continue if the hash is
    /// unchanged. With `None` it starts from the beginning.
    fn fingerprint(&self) -> Option<u32> {
        None
    }

    /// Identifies the current version of a sample's file, so that a resumed conversion notices a change. Returns `None`
    /// if the sample has no file of its own or the file cannot be examined. Files with many samples are part of
    /// [`Source::fingerprint`] instead.
    fn stamp(&self, _split: usize, _index: u64) -> Option<Stamp> {
        None
    }

    /// Returns the total file size if many samples may share the same bytes. Returns `None` if each sample's bytes count separately.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the file of a sample, for messages. Empty if the sample's `filename` is enough.
    fn place(&self, _split: usize, _index: u64) -> PathBuf {
        PathBuf::new()
    }

    /// Announces that a sample will be read soon, so that a source can prefetch its bytes into the CPU caches. Does
    /// nothing by default.
    fn prefetch(&self, _split: usize, _index: u64) {}

    /// Fills `sample` with sample `index` of split `split`. Indices start at 0 and follow the source's own order.
    ///
    /// # Errors
    ///
    /// Returns an error if the sample cannot be read or violates the source's format.
    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error>;
}

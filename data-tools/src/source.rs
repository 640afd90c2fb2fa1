//! What a convertible data set must offer: named splits, class names, and any sample by its index.

use crate::error::Error;
use loaders::{Example, Format};
use std::path::PathBuf;

/// One named part of a source, such as `train`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSplit {
    /// Name of the split, as it will stand in `dataset.json` and in the shards' names.
    pub name: String,
    /// Number of samples.
    pub len: u64,
}

/// One image with its label; reused from sample to sample so that its buffers grow once.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The payload: H, W, C bytes for [`Format::Raw`], else a whole PNG or JPEG file.
    pub encoded: Vec<u8>,
    /// How `encoded` is to be read; of a file its first bytes decide.
    pub format: Format,
    /// Rows; 0 in a sample that holds a file: the conversion reads its header.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Bytes of a pixel: 1 grey, 3 RGB.
    pub channels: u32,
    /// Class, an index into [`Source::classes`].
    pub label: u32,
    /// Where the image comes from, traceable by a person; stored with the record.
    pub filename: String,
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
            filename: String::new(),
        }
    }

    /// The sample as the record that it becomes; `text` is the name of its class, `offset` what labels start at.
    pub(crate) fn example<'a>(&'a self, text: &'a str, offset: i64) -> Example<'a> {
        Example {
            encoded: &self.encoded,
            format: self.format,
            height: self.height,
            width: self.width,
            channels: self.channels,
            label: i64::from(self.label) + offset,
            text,
            filename: &self.filename,
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

    /// What records call the class `label`; its name, unless the source knows better.
    fn text(&self, label: u32) -> &str {
        self.classes().get(label as usize).map_or("", String::as_str)
    }

    /// The WordNet id of the class `label`, where classes have one.
    fn synset(&self, _label: u32) -> Option<&str> {
        None
    }

    /// What stored labels start at.
    fn label_offset(&self) -> i64 {
        0
    }

    /// True where PNG files are to be stored as JPEGs.
    fn png_as_jpeg(&self) -> bool {
        false
    }

    /// A number that changes with the files and labels of a source whose conversion takes long: a conversion
    /// that was killed can then go on. `None` where it is begun anew.
    fn fingerprint(&self) -> Option<u32> {
        None
    }

    /// The file of a sample, for messages; empty where its `filename` says it all.
    fn place(&self, _split: usize, _index: u64) -> PathBuf {
        PathBuf::new()
    }

    /// What was left out of the source and why, a line each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Fills `sample` with number `index` (from 0, in the source's own order) of split number
    /// `split`.
    ///
    /// # Errors
    /// When the sample cannot be read or is not what the source's format says.
    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error>;
}

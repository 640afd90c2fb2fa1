//! An image with its label in a record: its fields, formats and keys.

use super::boxes::Boxes;
use super::labels::Labels;
use std::fmt;

pub(super) const ENCODED: &str = "image/encoded";
pub(super) const FORMAT: &str = "image/format";
pub(super) const HEIGHT: &str = "image/height";
pub(super) const WIDTH: &str = "image/width";
pub(super) const CHANNELS: &str = "image/channels";
pub(super) const LABEL: &str = "image/class/label";
pub(super) const TEXT: &str = "image/class/text";
pub(super) const ENTRY_POINTS: &str = "image/jpeg/entry_points";
pub(super) const FILENAME: &str = "image/filename";
/// What TensorFlow Datasets call the image file and the label; those above go before them.
pub(super) const TFDS_IMAGE: &str = "image";
pub(super) const TFDS_LABEL: &str = "label";

/// How `image/encoded` is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Plain bytes, rows of interleaved channels (H, W, C).
    Raw,
    /// A PNG file.
    Png,
    /// A JPEG file.
    Jpeg,
}

impl Format {
    /// The name as written to `image/format`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "RAW",
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
        }
    }

    /// The format of a file by its first bytes.
    pub(super) fn of_file(file: &[u8]) -> Option<Self> {
        if file.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if file.starts_with(&[0xff, 0xd8]) {
            Some(Self::Jpeg)
        } else {
            None
        }
    }

    /// The format of that name, in any case; JPG is JPEG.
    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"RAW") {
            Some(Self::Raw)
        } else if name.eq_ignore_ascii_case(b"PNG") {
            Some(Self::Png)
        } else if name.eq_ignore_ascii_case(b"JPEG") || name.eq_ignore_ascii_case(b"JPG") {
            Some(Self::Jpeg)
        } else {
            None
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One image with its label, borrowed from a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example<'a> {
    /// The image's bytes, in `format`.
    pub encoded: &'a [u8],
    /// What `encoded` holds.
    pub format: Format,
    /// Rows; 0 if the record has no such key.
    pub height: u32,
    /// Columns; 0 if the record has no such key.
    pub width: u32,
    /// Channels; 0 if the record has no such key.
    pub channels: u32,
    /// The label as stored; `label_offset` of the data set is not yet subtracted. Of several the first; 0 if there is none.
    pub label: i64,
    /// All labels, where there are none or several.
    pub labels: Labels<'a>,
    /// The class's name; empty if absent, cut at the first byte that is not UTF-8.
    pub text: &'a str,
    /// The name of the image's file; empty if absent, cut at the first byte that is not UTF-8.
    pub filename: &'a str,
    /// Boxes of objects in the image.
    pub boxes: Boxes<'a>,
    /// Places in a JPEG's data where decoding can begin, as [`crate::decode::entry_points`] makes them; empty if absent.
    pub entry_points: &'a [u8],
}

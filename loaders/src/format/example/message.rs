//! An image with its label in a record, and how it is written as a tf.Example.

use std::fmt;

use super::floats::{BOX_KEYS, Boxes, Floats, TARGETS};
use super::labels::{LABEL, Labels};
use crate::format::protobuf::{field_length, put_header, put_varint, varint_length};
use crate::spec::{Dtype, ImageSpec};

pub(super) const ENCODED: &str = "image/encoded";
pub(super) const FORMAT: &str = "image/format";
pub(super) const HEIGHT: &str = "image/height";
pub(super) const WIDTH: &str = "image/width";
pub(super) const CHANNELS: &str = "image/channels";
pub(super) const DTYPE: &str = "image/dtype";
pub(super) const TEXT: &str = "image/class/text";
pub(super) const ENTRY_POINTS: &str = "image/jpeg/entry_points";
pub(super) const FILENAME: &str = "image/filename";
/// The name that TensorFlow Datasets uses for the image file. If a record has both, `image/encoded` has precedence.
pub(super) const TFDS_IMAGE: &str = "image";

/// The format of `image/encoded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Plain values: rows of interleaved channels (H, W, C).
    Raw,
    Png,
    Jpeg,
}

impl Format {
    /// Returns the name in `image/format`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "RAW",
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
        }
    }

    /// Detects the format of a file from its first bytes.
    pub(crate) fn detect(file: &[u8]) -> Option<Self> {
        if file.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if file.starts_with(&[0xff, 0xd8]) {
            Some(Self::Jpeg)
        } else {
            None
        }
    }

    /// Returns the format with this name, ignoring case. JPG means JPEG.
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

/// An image with its label, borrowed from a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example<'a> {
    /// The image's bytes in `format`.
    pub encoded: &'a [u8],
    pub format: Format,
    /// Number of rows, or 0 if the record does not have the key.
    pub height: u32,
    /// Number of columns, or 0 if the record does not have the key.
    pub width: u32,
    /// Number of channels, or 0 if the record does not have the key.
    pub channels: u32,
    /// The value type in a RAW image. `U8` if the record does not have the key.
    pub dtype: Dtype,
    /// The label as stored, before `label_offset` of the data set is subtracted. If there are multiple labels, the
    /// first one. If there is no label, 0.
    pub label: i64,
    /// All labels, if the image has none or more than one. Otherwise only `label` is set.
    pub labels: Labels<'a>,
    /// Regression targets, if the image has numbers instead of class labels. Empty if the record does not have the key.
    pub targets: Floats<'a>,
    /// The name of the class. Empty if missing. Truncated before the first byte that is not UTF-8.
    pub text: &'a str,
    /// The name of the image's file. Empty if missing. Truncated before the first byte that is not UTF-8.
    pub filename: &'a str,
    /// Bounding boxes of objects in the image.
    pub boxes: Boxes<'a>,
    /// Positions in a JPEG's data where decoding can begin, made by [`crate::decode::entry_points`]. Empty if missing.
    pub entry_points: &'a [u8],
}

impl<'a> Example<'a> {
    /// Creates an example that has only an image file: label 0, no sizes, and no other keys.
    pub const fn from_file(encoded: &'a [u8], format: Format) -> Self {
        Self {
            encoded,
            format,
            height: 0,
            width: 0,
            channels: 0,
            dtype: Dtype::U8,
            label: 0,
            labels: Labels(None),
            targets: Floats(&[]),
            text: "",
            filename: "",
            boxes: Boxes([Floats(&[]); 4]),
            entry_points: &[],
        }
    }

    /// Creates an example that has only a RAW image with bytes as values, and label 0.
    pub const fn from_raw(encoded: &'a [u8], spec: ImageSpec) -> Self {
        let ImageSpec { height, width, channels } = spec;
        Self { height, width, channels, ..Self::from_file(encoded, Format::Raw) }
    }
}

/// Appends the message to `out`. Keys are sorted, and integer lists are packed. All keys are written, except boxes,
/// targets and entry points if they are empty, and the type if it is `uint8`. So equal examples give equal bytes.
pub fn encode(e: &Example<'_>, out: &mut Vec<u8>) {
    encode_with(e, &[], out);
}

/// Works like [`encode`], with additional keys that have byte strings, such as `image/class/synset`.
pub fn encode_with(e: &Example<'_>, more: &[(&str, &str)], out: &mut Vec<u8>) {
    let own = required_entries(e);
    let is_plain = e.boxes.is_empty() && e.targets.is_empty() && e.entry_points.is_empty() && e.dtype == Dtype::U8;
    if more.is_empty() && is_plain {
        return write_required(&own, out);
    }
    let more = more.iter().map(|&(key, value)| (key, Item::Bytes(value.as_bytes())));
    let boxes = BOX_KEYS.into_iter().zip(e.boxes.0).filter(|_| !e.boxes.is_empty());
    let boxes = boxes.map(|(key, list)| (key, Item::Floats(list.0)));
    let points = (!e.entry_points.is_empty()).then_some((ENTRY_POINTS, Item::Bytes(e.entry_points)));
    let dtype = (e.dtype != Dtype::U8).then_some((DTYPE, Item::Bytes(e.dtype.name().as_bytes())));
    let targets = (!e.targets.is_empty()).then_some((TARGETS, Item::Floats(e.targets.0)));
    let optional = more.chain(boxes).chain(points).chain(dtype).chain(targets);
    let mut entries: Vec<Entry<'_>> = own.into_iter().chain(optional).collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    put_header(1, entries.iter().map(length).sum(), out);
    entries.iter().for_each(|entry| put(entry, out));
}

/// Returns the entries that every example has, sorted by key.
#[inline(always)]
fn required_entries<'a>(e: &Example<'a>) -> [Entry<'a>; 8] {
    [
        (CHANNELS, Item::Int(i64::from(e.channels))),
        (LABEL, e.labels.0.map_or(Item::Int(e.label), Item::Ints)),
        (TEXT, Item::Bytes(e.text.as_bytes())),
        (ENCODED, Item::Bytes(e.encoded)),
        (FILENAME, Item::Bytes(e.filename.as_bytes())),
        (FORMAT, Item::Bytes(e.format.name().as_bytes())),
        (HEIGHT, Item::Int(i64::from(e.height))),
        (WIDTH, Item::Int(i64::from(e.width))),
    ]
}

/// Appends a message that has only these entries. There is no loop over the entries, so that the compiler knows each
/// key and copies it without a function call.
#[inline(always)]
fn write_required([a, b, c, d, e, f, g, h]: &[Entry<'_>; 8], out: &mut Vec<u8>) {
    let features = length(a) + length(b) + length(c) + length(d) + length(e) + length(f) + length(g) + length(h);
    out.reserve(field_length(features));
    put_header(1, features, out);
    put(a, out);
    put(b, out);
    put(c, out);
    put(d, out);
    put(e, out);
    put(f, out);
    put(g, out);
    put(h, out);
}

type Entry<'a> = (&'a str, Item<'a>);

/// Returns the number of bytes of an entry with its header.
#[inline(always)]
fn length((key, item): &Entry<'_>) -> usize {
    field_length(entry_length(key, item))
}

/// Appends an entry with its header.
#[inline(always)]
fn put((key, item): &Entry<'_>, out: &mut Vec<u8>) {
    put_header(1, entry_length(key, item), out);
    put_header(1, key.len(), out);
    out.extend_from_slice(key.as_bytes());
    let list = item.list_length();
    put_header(2, field_length(list), out);
    put_header(item.feature_field(), list, out);
    match item {
        Item::Bytes(bytes) => {
            put_header(1, bytes.len(), out);
            out.extend_from_slice(bytes);
        }
        Item::Int(value) => {
            put_header(1, varint_length(*value as u64), out);
            put_varint(*value as u64, out);
        }
        Item::Ints(list) | Item::Floats(list) => out.extend_from_slice(list),
    }
}

enum Item<'a> {
    Bytes(&'a [u8]),
    Int(i64),
    /// The bytes of an encoded Int64List.
    Ints(&'a [u8]),
    /// The bytes of an encoded FloatList.
    Floats(&'a [u8]),
}

impl Item<'_> {
    /// Returns the length in bytes of the encoded list.
    #[inline(always)]
    fn list_length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => field_length(bytes.len()),
            Self::Int(value) => field_length(varint_length(*value as u64)),
            Self::Ints(list) | Self::Floats(list) => list.len(),
        }
    }

    /// Returns the field number that `Feature` has for this type of list.
    #[inline(always)]
    fn feature_field(&self) -> u8 {
        match self {
            Self::Bytes(_) => 1,
            Self::Floats(_) => 2,
            Self::Int(_) | Self::Ints(_) => 3,
        }
    }
}

/// Returns the length of a map entry: the key, then a Feature with a list.
#[inline(always)]
fn entry_length(key: &str, item: &Item<'_>) -> usize {
    field_length(key.len()) + field_length(field_length(item.list_length()))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn own_keys_are_sorted_and_further_ones_do_not_change_them() {
        let encoded = vec![7; 70_000];
        let raw = Example::from_raw(&encoded, ImageSpec::new(100, 700, 1));
        let example = Example { label: -1, text: "a class", filename: "a file", ..raw };
        let own = required_entries(&example);
        assert!(own.is_sorted_by_key(|(key, _)| *key));
        let (mut plain, mut more) = (Vec::new(), Vec::new());
        encode(&example, &mut plain);
        encode_with(&example, &[("z", "")], &mut more);
        assert_eq!((parse(&plain), parse(&more)), (Ok(example), Ok(example)));
        // The additional entry is the last one, and the header has the same length in both messages.
        let last = length(&("z", Item::Bytes(b"")));
        let header = plain.len() - own.iter().map(length).sum::<usize>();
        assert_eq!(plain[header..], more[header..more.len() - last]);
    }
}

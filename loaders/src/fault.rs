//! Everything that can be wrong with a record: its framing, its tf.Example, its image.
//! [`Error::Record`](crate::Error::Record) adds the file and the number of the record.

use base::text::plural;

use crate::format::protobuf::Damage;
use crate::spec::{Dtype, ImageSpec};

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The framing or a checksum is wrong.
    #[error("{0}; copy or convert the shard again, and check with `trireme data verify`")]
    Record(#[from] RecordFault),
    /// The index and the record's length field give different sizes for the record.
    #[error(
        "the index says {indexed} bytes, but the record has {actual}; \
         create the index again with `trireme data index`"
    )]
    Size {
        /// Size according to the index.
        indexed: u64,
        /// Size according to the record's length field.
        actual: u64,
    },
    /// The payload is not a tf.Example with an image.
    #[error("{0}")]
    Example(#[from] ExampleFault),
    /// The label is not a valid class.
    #[error(
        "label {stored} (minus label_offset {offset}: {label}): expected 0 to {last}; \
         check `classes` and `label_offset` in dataset.json"
    )]
    Label {
        /// The label as stored in the record.
        stored: i64,
        /// `label_offset` of the data set.
        offset: i64,
        /// The class: `stored` minus `offset`.
        label: i128,
        /// The last valid class.
        last: i64,
    },
    /// The record has a list of labels, but the images of this data set have one label each.
    #[error(
        "{count} labels: expected one, because dataset.json does not set `multi_label`; convert the images again with a table of \
         their labels, or use the dataset.json that belongs to the shards"
    )]
    Labels {
        /// Number of labels in the record.
        count: usize,
    },
    /// The record does not have a finite number for each target.
    #[error(
        "`image/targets`: expected {expected} finite numbers, one for each of `targets` in dataset.json, got {got}; convert the images \
         again, or use the dataset.json that belongs to the shards"
    )]
    Targets {
        /// Number of targets in the data set.
        expected: usize,
        got: String,
    },
    /// The image has a different shape than the pipeline was built for.
    #[error(
        "image of {got} (height x width x channels), expected {expected}; images may have various sizes only if the list \
         of transforms begins with random_resized_crop(size), or with resize(size) and center_crop(size)"
    )]
    ImageSize {
        /// The shape that the pipeline accepts.
        expected: ImageSpec,
        got: ImageSpec,
    },
    /// The image has a different size than earlier ones. The message has no advice, because only the caller knows the
    /// list of transforms.
    #[error("image of {got} (height x width x channels), but earlier images have {first}")]
    DifferentSize {
        /// The shape of the first image.
        first: ImageSpec,
        got: ImageSpec,
    },
    /// The image has a different number of channels than the pipeline was built for.
    #[error(
        "image of {got} (height x width x channels), expected {}{}",
        plural(expected, "channel"),
        colour_advice(*expected, *got)
    )]
    Channels {
        /// Number of channels of the pipeline's input.
        expected: u32,
        got: ImageSpec,
    },
    /// The image has no pixels, or too many.
    #[error(
        "image of {got} (height x width x channels): expected 1 to {limit} pixels; scale it down first, or raise \
         --limit-memory (`data convert`, `predict`)"
    )]
    PixelCount { got: ImageSpec, limit: u64 },
    /// Reading the file would take too much memory.
    #[error(
        "the {what} needs {}, but {:.1} MB are allowed ({} MiB plus four times its size); scale it down first, or \
         raise --limit-memory (`data convert`, `predict`)",
        needed.map_or("more memory".into(), |bytes| format!("{:.1} MB of memory", bytes as f64 / 1e6)), *allowed as f64 / 1e6, extra >> 20
    )]
    Memory {
        /// The kind of file, for example PNG.
        what: &'static str,
        /// Bytes needed, if this is known beforehand.
        needed: Option<u64>,
        /// Maximum number of bytes for this file.
        allowed: u64,
        /// The part of `allowed` that does not depend on the file's size.
        extra: u64,
    },
    /// Decoding the image would take too much CPU time. `most_scans` and `most_seconds` are the limits.
    #[error(
        "decoding the image with its {scans} scans takes about {seconds:.1} s, but at most {most_scans} scans and \
         {most_seconds:.1} s are allowed; save it again, or raise --limit-seconds (`data convert`, `predict`)"
    )]
    Time {
        /// Number of scans of the JPEG.
        scans: u32,
        /// Estimated CPU time in seconds.
        seconds: f64,
        most_scans: u32,
        most_seconds: f64,
    },
    /// The first bytes do not belong to any supported image format.
    #[error("neither a PNG nor a JPEG file: {0}")]
    Unknown(String),
    /// A RAW image has `got` bytes, which does not match its shape and type.
    #[error(
        "RAW image of {spec}{}: expected {} bytes (above 0), got {got}",
        if *dtype == Dtype::U8 { String::new() } else { format!(" with {dtype} values") },
        spec.values().saturating_mul(dtype.bytes())
    )]
    RawLength { spec: ImageSpec, dtype: Dtype, got: usize },
    /// The values of the image have another type than expected.
    #[error(
        "image of {got} values, expected {expected}; convert the images again, or use the dataset.json that belongs to the shards"
    )]
    Dtype { expected: Dtype, got: Dtype },
    /// The entry points of a JPEG are wrong.
    #[error(
        "`image/jpeg/entry_points`: {0}; convert the images again (`trireme data convert --entry-points`), or write records \
         without this key"
    )]
    EntryPoints(String),
    /// A PNG or JPEG file cannot be decoded.
    #[error("cannot decode the {format} image: {problem}")]
    Decode {
        /// The format according to the image's first bytes.
        format: &'static str,
        problem: String,
    },
}

/// Returns advice if an image has colours where the pipeline expects grey images.
fn colour_advice(expected: u32, got: ImageSpec) -> &'static str {
    match (expected, got.channels) {
        (1, 3) => "; begin augment.train and augment.eval with \"rgb\" if some images have colours",
        _ => "",
    }
}

/// The reason why the bytes at an offset are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The file ends before the record does.
    #[error("the record needs {need} bytes but the file has {have} left; the file was cut short")]
    Truncated {
        /// Size of the record in bytes, or the size of an empty record if the file ends within the header.
        need: u64,
        /// Number of bytes from the record's start to the end of the file.
        have: u64,
    },
    /// The checksum of the length field is wrong, so the length cannot be trusted.
    #[error("checksum of the length field: expected {stored:#010x}, got {computed:#010x}")]
    LengthChecksum {
        /// The masked CRC that the file contains.
        stored: u32,
        /// The masked CRC of the bytes that it covers.
        computed: u32,
    },
    /// The checksum of the payload is wrong.
    #[error("checksum of the payload: expected {stored:#010x}, got {computed:#010x}")]
    PayloadChecksum {
        /// The masked CRC that the file contains.
        stored: u32,
        /// The masked CRC of the bytes that it covers.
        computed: u32,
    },
}

/// The reason why a payload is not a usable tf.Example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExampleFault {
    /// The bytes are not a protobuf message of this form.
    #[error("not a tf.Example: {0}")]
    Malformed(#[from] Damage),
    /// A key that every image needs is missing.
    #[error("tf.Example has no `{0}`")]
    Missing(&'static str),
    /// A key has the wrong type of list, or an empty list.
    #[error("`{key}`: expected a {expected}, got another type or an empty list")]
    WrongType { key: &'static str, expected: &'static str },
    /// `image/format` names an unsupported format.
    #[error("`image/format`: expected RAW, PNG or JPEG, got \"{0}\"")]
    UnknownFormat(String),
    /// The lists of the boxes' edges have these different lengths.
    #[error(
        "`image/object/bbox`: expected the same number of each edge, got {ymin} ymin, {xmin} xmin, {ymax} ymax, {xmax} xmax"
    )]
    Boxes { ymin: usize, xmin: usize, ymax: usize, xmax: usize },
    /// `image/dtype` names an unsupported type.
    #[error("`image/dtype`: expected uint8, uint16, int16 or float32, got \"{0}\"")]
    UnknownDtype(String),
    /// `image/dtype` is only for RAW images.
    #[error("`image/dtype` is {dtype}, but the image is a {format} file: only RAW images may have this type")]
    DtypeOfFile { dtype: Dtype, format: &'static str },
    /// The height, width or number of channels of a RAW image is missing or 0.
    #[error("`{0}` is missing or 0, but a RAW image needs it")]
    RawSize(&'static str),
    /// A size is below 0 or above 2^32 - 1.
    #[error("`{key}`: expected a size from 0 to 4294967295, got {value}")]
    BadSize { key: &'static str, value: i64 },
}

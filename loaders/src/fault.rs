//! What can be wrong with one record: its framing, its tf.Example, its image. Which file and record a fault belongs to is added by
//! [`Error::Record`](crate::Error::Record).

use crate::spec::ImageSpec;

/// What is wrong with one record.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Framing or checksum.
    #[error("{0}; copy or convert the shard anew, and check with `trireme data verify`")]
    Record(#[from] RecordFault),
    /// The index gives another size than the record itself.
    #[error(
        "the index says {indexed} bytes, the record is {actual}; \
         make the index anew with `trireme data index`"
    )]
    Size {
        /// Size by the index.
        indexed: u64,
        /// Size by the record's length field.
        actual: u64,
    },
    /// The payload is not a tf.Example with an image.
    #[error("{0}")]
    Example(#[from] ExampleFault),
    /// The label is no class.
    #[error(
        "label {stored} (minus label_offset {offset}: {label}): expected 0 to {last}; \
         check `classes` and `label_offset` in dataset.json"
    )]
    Label {
        /// As stored.
        stored: i64,
        /// `label_offset` of the data set.
        offset: i64,
        /// `stored` minus `offset`.
        label: i128,
        /// The last class.
        last: i64,
    },
    /// A record of none or several labels, where images have one.
    #[error(
        "{count} labels: expected one, since dataset.json does not say that images may have several (`multi_label`); convert the images \
         with a table of their labels, or take the dataset.json that belongs to the shards"
    )]
    Labels {
        /// In the record.
        count: usize,
    },
    /// The image has another shape than the pipeline was built for.
    #[error(
        "image of {got} (height x width x channels), expected {expected}; images may only vary in size if the list of \
         transforms begins with random_resized_crop(size), or with resize(size) and center_crop(size)"
    )]
    ImageSize {
        /// The pipeline's input.
        expected: ImageSpec,
        /// The image.
        got: ImageSpec,
    },
    /// The image has another size than those before it, which the reader's own message explains.
    #[error("image of {got} (height x width x channels), earlier ones have {first}")]
    Odd {
        /// The first image.
        first: ImageSpec,
        /// The image.
        got: ImageSpec,
    },
    /// The image has another number of channels than the pipeline was built for.
    #[error("image of {got} (height x width x channels), expected {expected} channels")]
    Channels {
        /// The pipeline's.
        expected: u32,
        /// The image.
        got: ImageSpec,
    },
    /// The image has no pixels, or too many.
    #[error(
        "image of {got} (height x width x channels): expected 1 to {limit} pixels; scale it down first, or raise \
         --limit-memory (`data convert`, `predict`)"
    )]
    PixelCount {
        /// The image.
        got: ImageSpec,
        /// The most pixels that are accepted.
        limit: u64,
    },
    /// Reading the file would take too much memory.
    #[error(
        "the {what} needs {} of memory, {:.1} MB are allowed ({} MiB and four times its size); scale it down first, or \
         raise --limit-memory (`data convert`, `predict`)",
        needed.map_or("more".into(), |bytes| format!("{:.1} MB", bytes as f64 / 1e6)), *allowed as f64 / 1e6, extra >> 20
    )]
    Memory {
        /// PNG, JPEG and the like.
        what: &'static str,
        /// Bytes, if they are known beforehand.
        needed: Option<u64>,
        /// The most bytes for this file.
        allowed: u64,
        /// Of these, bytes that do not depend on its size.
        extra: u64,
    },
    /// Decoding the image would take too much CPU time.
    #[error(
        "decoding the image in its {scans} scans takes about {seconds:.1} s; at most {most_scans} scans and {most_seconds:.1} s \
         are allowed: save it anew, or raise --limit-seconds (`data convert`, `predict`)"
    )]
    Time {
        /// Scans of the JPEG.
        scans: u32,
        /// Estimated seconds.
        seconds: f64,
        /// The most scans.
        most_scans: u32,
        /// The most seconds.
        most_seconds: f64,
    },
    /// The bytes begin like no image that can be read.
    #[error("neither a PNG nor a JPEG file: {0}")]
    Unknown(String),
    /// The bytes of a RAW image do not fit its shape.
    #[error("RAW image of {spec}: expected {} bytes (above 0), got {got}", spec.values())]
    RawLength {
        /// The shape in the record.
        spec: ImageSpec,
        /// The number of bytes.
        got: usize,
    },
    /// The entry points of a JPEG lead astray.
    #[error(
        "`image/jpeg/entry_points`: {0}; convert the images anew (`trireme data convert --entry-points`), or write records without this key"
    )]
    EntryPoints(String),
    /// A PNG or JPEG file that cannot be decoded.
    #[error("cannot decode the {format} image: {problem}")]
    Decode {
        /// The format by the image's first bytes.
        format: &'static str,
        /// The decoder's words.
        problem: String,
    },
}

/// Why the bytes at some offset are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The file ends before the record does.
    #[error("the record needs {need} bytes but the file has {have} left; the file was cut short")]
    Truncated {
        /// Bytes that the record takes, as far as is known.
        need: u64,
        /// Bytes from the record's start to the end of the file.
        have: u64,
    },
    /// The length field fails its checksum; the length is not to be trusted.
    #[error("checksum of the length field: expected {stored:#010x}, got {computed:#010x}")]
    LengthChecksum {
        /// Masked CRC in the file.
        stored: u32,
        /// Masked CRC of the bytes as they are.
        computed: u32,
    },
    /// The payload fails its checksum.
    #[error("checksum of the payload: expected {stored:#010x}, got {computed:#010x}")]
    PayloadChecksum {
        /// Masked CRC in the file.
        stored: u32,
        /// Masked CRC of the bytes as they are.
        computed: u32,
    },
}

/// Why a payload is not a usable tf.Example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExampleFault {
    /// The bytes are not a protobuf message of this shape.
    #[error("not a tf.Example: {0}")]
    Malformed(#[from] Malformed),
    /// A key that every image needs is absent.
    #[error("tf.Example has no `{0}`")]
    Missing(&'static str),
    /// A key holds another kind of list than it should, or an empty one.
    #[error("`{key}`: expected one {expected}, got another type or an empty list")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// `image/format` names a format that cannot be read.
    #[error("`image/format`: expected RAW, PNG or JPEG, got \"{0}\"")]
    UnknownFormat(String),
    /// The lists of the boxes' edges differ in length.
    #[error(
        "`image/object/bbox`: expected as many of each edge, got {ymin} ymin, {xmin} xmin, {ymax} ymax, {xmax} xmax"
    )]
    Boxes {
        /// Values of each list.
        ymin: usize,
        /// See `ymin`.
        xmin: usize,
        /// See `ymin`.
        ymax: usize,
        /// See `ymin`.
        xmax: usize,
    },
    /// A RAW image's height, width or channel count is missing or 0.
    #[error("`{0}` is missing or 0; the bytes of a RAW image do not tell its shape")]
    RawSize(&'static str),
    /// A size below 0 or above 2^32 - 1.
    #[error("`{key}`: expected a size, got {value}")]
    BadSize {
        /// The key.
        key: &'static str,
        /// The value.
        value: i64,
    },
}

/// Why bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub(crate) &'static str);

//! The one error of this package. Each message says where, what was expected, what was found, and
//! what to try; the caller adds the rank.

use std::io;
use std::path::PathBuf;

use crate::decode::MOST_PIXELS;
use crate::format::example::ExampleFault;
use crate::format::record::RecordFault;
use crate::{ImageSpec, Images};

/// What can be wrong with a data set, a pipeline or a loader.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// "open", "map", "write" and the like.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file ends before bytes that it had when it was opened.
    #[error(
        "{path}: cannot read {expected} bytes at byte offset {offset}: the file ends after {got} of them; it was cut short \
         while in use: restore it and check with `trireme data verify`"
    )]
    ShortRead {
        /// The file.
        path: PathBuf,
        /// Where the read started.
        offset: u64,
        /// Bytes asked for.
        expected: u64,
        /// Bytes that were there.
        got: u64,
    },
    /// A copy would not fit.
    #[error(
        "{dir}: the copy needs {:.1} GB, {:.1} GB are free; choose another --stage folder, or none", *needed as f64 / 1e9,
        *free as f64 / 1e9
    )]
    Space {
        /// Where the copy should go.
        dir: PathBuf,
        /// Bytes to copy.
        needed: u64,
        /// Bytes that may be written there.
        free: u64,
    },
    /// The folder is no data set.
    #[error(
        "{dir} is not a data set: {problem}; make one with `trireme data convert`, \
         or index existing TFRecords with `trireme data index {dir}`"
    )]
    NoDataset {
        /// The folder.
        dir: PathBuf,
        /// What is missing.
        problem: String,
    },
    /// `dataset.json` does not hold what it should.
    #[error("{path}: {problem}; make it anew with `trireme data convert` or `trireme data index`")]
    Manifest {
        /// The path of `dataset.json`.
        path: PathBuf,
        /// Key, expected, got.
        problem: String,
    },
    /// There is no split of that name.
    #[error("{dir} has no split `{name}`; it has {known}")]
    UnknownSplit {
        /// The data set's folder.
        dir: PathBuf,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A shard has no index beside it.
    #[error("{index} is missing: the shard has no index; run `trireme data index {dir}`")]
    NoIndex {
        /// Where the index should be.
        index: PathBuf,
        /// The data set's folder.
        dir: PathBuf,
    },
    /// An index does not fit its shard.
    #[error("{index}: {problem}; run `trireme data index {dir}` to make it anew")]
    Index {
        /// The index.
        index: PathBuf,
        /// The data set's folder.
        dir: PathBuf,
        /// Line, expected, got.
        problem: String,
    },
    /// A shard is not what `dataset.json` says.
    #[error(
        "{path}: {what}: dataset.json says {expected}, found {got}; the shard was changed or cut \
         short: copy or convert it anew, and check with `trireme data verify`"
    )]
    Shard {
        /// The shard.
        path: PathBuf,
        /// "bytes" or "records".
        what: &'static str,
        /// The number in `dataset.json`.
        expected: u64,
        /// The number in the file.
        got: u64,
    },
    /// A record cannot be used.
    #[error("{path}, record {record} at byte {offset}: {fault}")]
    Record {
        /// The shard.
        path: PathBuf,
        /// The record's number within the shard, from 0.
        record: u64,
        /// Where the record starts, in bytes.
        offset: u64,
        /// What is wrong.
        fault: Fault,
    },
    /// A sample's id is not below the split's length.
    #[error("split `{split}` has {len} samples, so there is no sample {id}")]
    NoSample {
        /// The split.
        split: String,
        /// The id asked for.
        id: u64,
        /// The number of samples.
        len: u64,
    },
    /// The list of transforms cannot be used.
    #[error("transform {index} `{text}`: {problem}")]
    Transform {
        /// Position in the list, from 0.
        index: usize,
        /// The entry as given.
        text: String,
        /// What is wrong and what to try.
        problem: String,
    },
    /// A list that leaves images of various sizes.
    #[error(
        "the transforms leave images of {images} in various sizes, and a batch needs one; begin the list with \
         random_resized_crop(size) or inception_crop(size), or with resize(size) and then center_crop(size) or random_crop(size)"
    )]
    Unsettled {
        /// What goes in.
        images: Images,
    },
    /// More shards are open at once than the fault handler can name.
    #[error(
        "{path}: {limit} shards are open already; use fewer and larger shards \
         (`trireme data convert --shards N`)"
    )]
    TooManyShards {
        /// The shard that was one too many.
        path: PathBuf,
        /// The most that can be open.
        limit: usize,
    },
    /// A loader thread panicked.
    #[error("loader thread {thread} panicked: {message}; this is a defect of trireme, please report it")]
    Panic {
        /// The thread's number.
        thread: usize,
        /// The panic's message.
        message: String,
    },
    /// A picture file that cannot be used.
    #[error("picture {}: {problem}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The system gives no thread.
    #[error("cannot start a loader thread: {source}; ask for fewer threads, or raise `ulimit -u`")]
    Thread {
        /// The system's answer.
        source: io::Error,
    },
    /// The priority of a loader thread cannot be lowered.
    #[error("cannot set loader threads to nice {nice}: {source}; expected 0 to 19")]
    Nice {
        /// The nice value asked for.
        nice: i32,
        /// The system's answer.
        source: io::Error,
    },
    /// The consumer holds every slot of the ring and asks for more.
    #[error("all {slots} batch slots are held by the consumer; drop a batch first, or ask for more slots")]
    SlotsHeld {
        /// The number of slots.
        slots: usize,
    },
    /// `next` was called on a loader that had already reported an error.
    #[error("the loader stopped at an earlier error")]
    Stopped,
}

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
    /// The payload.
    #[error("{0}")]
    Example(#[from] ExampleFault),
    /// The label is no class.
    #[error(
        "label {stored} (with label_offset {offset} taken off: {label}): expected 0 to {last}; \
         check `classes` and `label_offset` in dataset.json"
    )]
    Label {
        /// As stored.
        stored: i64,
        /// `label_offset` of the data set.
        offset: i64,
        /// What remains.
        label: i128,
        /// The last class.
        last: i64,
    },
    /// The image has another shape than the pipeline was built for.
    #[error(
        "image of {got} (height x width x channels), expected {expected}; images may only vary in size under a list of \
         transforms that begins with random_resized_crop(size), or with resize(size) and center_crop(size)"
    )]
    ImageSize {
        /// The pipeline's input.
        expected: ImageSpec,
        /// The image.
        got: ImageSpec,
    },
    /// The image has other channels than the pipeline was built for.
    #[error("image of {got} (height x width x channels), expected {expected} channels")]
    Channels {
        /// The pipeline's.
        expected: u32,
        /// The image.
        got: ImageSpec,
    },
    /// An image that would take too much memory, or that has no pixels.
    #[error("image of {got} (height x width x channels): expected 1 to {} pixels", MOST_PIXELS)]
    TooLarge {
        /// The image.
        got: ImageSpec,
    },
    /// A raw image's bytes do not fit its shape.
    #[error("RAW image of {spec}: expected {} bytes (above 0), got {got}", spec.values())]
    RawLength {
        /// The shape in the record.
        spec: ImageSpec,
        /// Bytes there are.
        got: usize,
    },
    /// PNG or JPEG that cannot be decoded.
    #[error("cannot decode the {format} image: {problem}")]
    Decode {
        /// The format by the image's first bytes.
        format: &'static str,
        /// The decoder's words.
        problem: String,
    },
}

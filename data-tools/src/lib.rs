//! Makes, checks and measures image data sets as TFRecord shards with a `dataset.json`: the library
//! behind `trireme data`.
//!
//! Each command is one function that returns a typed result with `Display` for people and
//! `to_json()` for scripts; nothing here prints, except a progress bar, and that only on a
//! terminal: [`convert()`] writes shards from a known source, [`info()`] describes a data set,
//! [`verify()`] checks every record, [`stats()`] measures pixels and labels, [`index()`] makes
//! foreign TFRecords readable. What a record, a shard and `dataset.json` look like is settled in
//! the `loaders` crate.

pub mod convert;
pub mod error;
pub mod index;
pub mod info;
pub mod kinds;
pub mod source;
pub mod stats;
pub mod verify;

mod archive;
mod idx;
mod input;
mod moments;
mod pixels;
mod pool;
mod progress;
mod scan;
mod shard_writer;
mod staging;
mod text;
mod walk;

pub use convert::{ConvertOptions, Converted, convert, convert_source};
pub use error::Error;
pub use index::{Indexed, index};
pub use info::{FirstImage, Info, SplitInfo, info};
pub use kinds::KINDS;
pub use source::{Sample, Source, SourceSplit};
pub use stats::{Stats, stats};
pub use verify::{Bad, Report, verify};

//! Makes, checks and measures image data sets as TFRecord shards with a `dataset.json`: the library
//! behind `trireme data`.
//!
//! Each command is one function that returns a typed result with `Display` for people and
//! `to_json()` for scripts; nothing here prints, except progress, to standard error: [`convert()`] writes shards from a
//! known source, [`info()`] describes a data set, [`verify()`] checks every record, [`stats()`] measures pixels and labels,
//! [`show()`] makes a contact sheet, [`index()`] makes foreign TFRecords readable. What a record, a shard and `dataset.json`
//! look like is settled in
//! the `loaders` crate.

pub mod convert;
pub mod converted;
pub mod error;
pub mod index;
pub mod info;
pub mod kinds;
pub mod options;
pub mod show;
pub mod sizes;
pub mod source;
pub mod stats;
pub mod verify;

mod archive;
mod classes;
mod conversion;
mod idx;
mod input;
mod journal;
mod listing;
mod matlab;
mod measure;
mod moments;
mod pipeline;
mod pixels;
mod planes;
mod pool;
mod progress;
mod recode;
mod scan;
mod shard_writer;
mod staging;
mod tally;
mod tar_index;
mod text;
mod walk;

pub use convert::{convert, convert_source};
pub use converted::Converted;
pub use error::Error;
pub use index::{Indexed, index};
pub use info::{FirstImage, Info, SplitInfo, info};
pub use kinds::KINDS;
pub use options::{ConvertOptions, OnBad};
pub use show::{ShowOptions, Shown, show};
pub use sizes::{Sizes, Spread};
pub use source::{Sample, Source, SourceSplit};
pub use stats::{Stats, stats};
pub use verify::{Bad, Report, verify};

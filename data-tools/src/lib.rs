//! Converts image data sets to TFRecord shards with a `dataset.json`, and checks, measures and reshapes them. `trireme
//! data` uses this library.
//!
//! Each command is a function. Its result implements `Display` for people and has `to_json()` for scripts. Only
//! progress is printed, to standard error. For example, [`convert()`] writes shards from a source, [`info()`] describes
//! a data set, [`verify()`] checks every record, [`stats()`] measures pixels and labels, [`show()`] writes a contact
//! sheet, and [`index()`] makes TFRecords from other programs readable. The `loaders` crate defines the formats of
//! records, shards and `dataset.json`.

mod convert;
mod dir;
mod error;
mod image;
mod inspect;
mod kinds;
pub mod npy;
mod options;
pub mod parquet_table;
mod pool;
mod progress;
pub mod raw;
mod reshape;
mod source;
mod splits;
mod text;

/// Parsers that the fuzz targets call. Not part of normal builds.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::image::fuzzing::recode;
    pub use crate::kinds::fuzzing::{idx, matlab, npz, recordio, source, tar_index};
    pub use crate::raw::fuzzing::raw;
}

pub use crate::image::{Sizes, Spread};
pub use convert::{ConvertSummary, ThreadTimes, convert, convert_source};
pub use error::Error;
pub use inspect::{
    COPIES, ContactSheet, CopyNames, ExtractSummary, FirstImage, IndexSummary, Info, LabelCounts, NearCopy, SHEET,
    ShardFault, ShowOptions, ShowSummary, SplitInfo, Stats, Thumbnail, VerifyReport, Viewer,
};
pub use inspect::{check_shown_bands, extract, index, info, matrix, show, stats, verify, write_duplicates};
pub use kinds::KINDS;
pub use options::{ConvertOptions, OnBad, To8Bit, to_8bit};
pub use progress::watch;
pub use reshape::{
    ExportSummary, ReshapeOptions, ReshapeSummary, Share, export_webdataset, merge, reshard, sample, split,
};
pub use source::{Blocks, Sample, Source, SourceInfo, SourceSplit, Stamp};
pub use splits::split_map;

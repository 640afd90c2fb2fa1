//! Makes, checks and measures image data sets as TFRecord shards with a `dataset.json`: the library behind `trireme data`.
//!
//! Each command is one function that returns a typed result with `Display` for people and `to_json()` for scripts; only
//! progress is printed, to standard error. [`convert()`] writes shards from a known source, [`info()`] describes a data set,
//! [`verify()`] checks every record, [`stats()`] measures pixels and labels, [`show()`] makes a contact sheet, [`index()`] makes
//! the TFRecords of other programs readable. The formats of records, shards and `dataset.json` are defined in the `loaders`
//! crate.

mod convert;
mod dir;
mod error;
mod image;
mod inspect;
mod kinds;
mod options;
mod pool;
mod progress;
mod reshape;
mod source;
mod splits;
mod text;

/// Readers that the fuzz targets call; not in ordinary builds.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::image::fuzzing::recode;
    pub use crate::kinds::fuzzing::{idx, matlab, npz, recordio, source, tar_index};
}

pub use crate::image::{Sizes, Spread};
pub use convert::{Converted, Spent, convert, convert_source};
pub use error::Error;
pub use inspect::{
    Bad, COPIES, ContactSheet, CopyNames, Extracted, FirstImage, Indexed, Info, NearCopy, Report, SHEET, SeveralLabels,
    ShowOptions, Shown, SplitInfo, Stats, Thumbnail, Thumbnails,
};
pub use inspect::{extract, index, index_with, info, matrix, show, stats, verify, write_duplicates};
pub use kinds::KINDS;
pub use options::{ConvertOptions, OnBad, To8Bit, to_8bit};
pub use reshape::{Exported, Reshaped, Reshaping, Share, export_webdataset, merge, reshard, sample, split};
pub use source::{Blocks, Sample, Source, SourceSplit, Stamp};
pub use splits::split_map;

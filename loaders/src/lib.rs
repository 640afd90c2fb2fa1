//! Reads TFRecord shards and fills training batches.
//!
//! A sample passes these stages: a [`Shard`] (mapped or read, see [`Io`]) -> an [`order`] (which samples are in which
//! batch) -> [`record`] and [`example`] (checksums, protobuf) -> [`decode`] -> [`transform`] -> a slot of the ring of a
//! [`Loader`] -> [`Batch`]. This crate knows nothing about MPI or devices. It sees a rank only as a pair of numbers for
//! an [`order`].
//!
//! Two properties always hold. Every random draw is a pure function of (seed, sample id, epoch, position in the list of
//! transforms), see [`random`]. So batches do not depend on the number of threads and ranks. And for every problem with
//! the data there is an [`Error`] that names the file, the record and the byte.
//!
//! Each folder imports only folders earlier in this list: `file` (opening and writing files), `format` (file formats),
//! `order` (pure arithmetic), `decode`, `transform`, `storage` (shards, reads, copies), `ring` (threads and batches).

pub mod channels;
pub mod crc32c;
pub mod decode;
mod error;
mod fault;
mod file;
mod format;
mod guarded;
mod label_sets;
pub mod memory;
#[cfg(test)]
#[path = "../tests/loaders/common/mentions.rs"]
mod mentions;
mod mix;
pub mod order;
pub mod random;
mod ring;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
mod spec;
pub mod stall;
mod storage;
mod sync;
mod threads;
pub mod transform;

pub use error::{Error, folder_of, why, write_advice};
pub use fault::Fault;
pub use file::{overwrite, regular, replace, safe_create, write_back};
pub use format::bands::{Bands, MAX_CHANNELS, Reading};
pub use format::example::{Example, Format};
pub use format::manifest::{MAX_TARGETS, Manifest, ShardManifest, SplitManifest, Target};
pub use format::record::Compression;
pub use format::{example, protobuf, record};
pub use guarded::{guarded, guarded_with, panic_text, will_be_caught};
pub use label_sets::{LabelKind, LabelSets};
pub use memory::{Cost, Limits};
pub use mix::{Area, BatchKey, Mix, MixSettings};
pub use order::{Balanced, EvalOrder, Job, Order, Permutation, Shuffle, SubsetOrder, TrainOrder};
pub use random::Draws;
pub use ring::batch::{Batch, PixelFormat};
pub use ring::loader::Loader;
pub use ring::options::{Footprint, MOST_THREADS, Options};
pub use ring::slot::Filling;
pub use ring::stats::LoaderStats;
pub use ring::{bench, stats};
pub use spec::{Dtype, ImageSpec, Images};
pub use storage::dataset::{Dataset, Split};
pub use storage::mapping::Mapping;
pub use storage::read_plan::Io;
pub use storage::shard::Shard;
pub use storage::{dataset, filesystem, lock_file, shard, sigbus, stage};
pub use threads::on_threads;
pub use transform::resample::{Plane, PlaneResizer};
pub use transform::{Conversion, CropRect, Pipeline, picture};

//! Reads TFRecord shards through mmap and fills training batches.
//!
//! A sample goes in a straight line: [`shard`] (mapped or read, see [`io`]) -> [`order`] (which samples, in
//! which batch) -> [`record`] and [`example`] (checksums, protobuf) -> [`decode`] -> [`transform`]
//! -> a slot of the ring of a [`Loader`] -> [`Batch`]. Nothing here knows of ranks' communication or
//! of devices: a rank is only a pair of numbers given to an [`order`].
//!
//! Two properties hold throughout. Every random draw is a pure function of (seed, sample id, epoch,
//! op), see [`random`], so batches are the same for any number of threads and ranks. And every
//! fault of the data is an [`Error`] that names the file, the record and the byte.

pub mod decode;
pub mod error;
mod file;
mod format;
pub mod order;
pub mod random;
mod ring;
pub mod spec;
mod storage;
pub mod transform;

pub use error::Error;
pub use file::replace;
pub use format::example::{Example, Format};
pub use format::{example, record};
pub use order::shuffle::Shuffle;
pub use order::{EvalOrder, Job, Order, Permutation, TrainOrder};
pub use random::Draws;
pub use ring::loader::{Batch, Form, Loader, Options};
pub use ring::stats::LoaderStats;
pub use ring::{bench, stats};
pub use spec::{ImageSpec, Images};
pub use storage::dataset::{Dataset, Manifest, ShardManifest, Split, SplitManifest};
pub use storage::io::Io;
pub use storage::shard::Shard;
pub use storage::{dataset, filesystem, io, shard, sigbus, stage};
pub use transform::resample::{Plane, PlaneResizer};
pub use transform::{Pipeline, Sight, picture};

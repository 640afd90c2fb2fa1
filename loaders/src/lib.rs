//! Reads TFRecord shards through mmap and fills training batches.
//!
//! The way of a sample is a straight line: [`shard`] (mapped or read, see [`io`]) -> [`order`] (which samples, in
//! which batch) -> [`record`] and [`example`] (checksums, protobuf) -> [`decode`] -> [`transform`]
//! -> a slot of the ring in [`loader`] -> [`Batch`]. Nothing here knows of ranks' communication or
//! of devices: a rank is only a pair of numbers given to an [`order`].
//!
//! Two properties hold throughout. Every random draw is a pure function of (seed, sample id, epoch,
//! op), see [`random`], so batches are the same for any number of threads and ranks. And every
//! fault of the data is an [`Error`] that names the file, the record and the byte.

pub mod bench;
pub mod dataset;
pub mod decode;
pub mod error;
pub mod example;
mod fetch;
pub mod filesystem;
pub mod io;
mod jpeg;
pub mod loader;
mod mapping;
pub mod nearest;
pub mod nice;
pub mod order;
pub mod picture;
pub mod protobuf;
pub mod random;
pub mod record;
mod regular;
pub mod replace;
mod resample;
pub mod shard;
pub mod shuffle;
pub mod sigbus;
mod slot;
pub mod spec;
pub mod stage;
pub mod stats;
pub mod transform;
pub mod window;
mod worker;

pub use dataset::{Dataset, Manifest, ShardManifest, Split, SplitManifest};
pub use error::Error;
pub use example::{Example, Format};
pub use io::Io;
pub use loader::{Batch, Form, Loader, Options};
pub use order::{EvalOrder, Job, Order, Permutation, TrainOrder};
pub use random::Draws;
pub use resample::{Plane, PlaneResizer};
pub use shard::Shard;
pub use shuffle::Shuffle;
pub use spec::{ImageSpec, Images};
pub use stats::LoaderStats;
pub use transform::{Pipeline, Sight};

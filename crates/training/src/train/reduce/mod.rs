//! The sum of a step over all ranks: gradients, bucket by bucket, and the metrics beside them.
//!
//! [`bucket_sum`] is the trait of one bucket's sum, with an implementation in each of [`host`] and [`device`] (a codec there; both follow
//! [`protocol`]), [`mpi`] and [`nccl`] (f32 in device memory). [`plan`] makes the buckets, [`choose`] picks the [`transport`], and
//! [`gradients`] carries out a step.

mod alternating;
pub mod bucket_sum;
pub mod bytes;
pub mod choose;
pub mod costs;
pub mod device;
pub mod error;
pub mod gradients;
pub mod host;
pub mod metrics;
pub mod mpi;
pub mod nccl;
pub mod plan;
pub mod protocol;
pub mod ranks;
pub mod sync_bn;
pub mod transport;
pub mod trial;

//! The sum of a step over all ranks: gradients, bucket by bucket, and the metrics beside them.
//!
//! [`bucket_sum`] is the trait of one bucket's sum, with an implementation in each of [`host`] and [`device`] (a codec there; both follow
//! [`protocol`]), [`mpi`] and [`nccl`] (f32 in device memory). [`plan`] makes the buckets, [`choose`] picks the [`transport`], and
//! [`gradients`] carries out a step.

pub mod bucket_sum;
pub mod device;
pub mod gradients;
pub mod host;
pub mod metrics;
pub mod plan;
pub mod ranks;
pub mod transport;

//! The sum of a step over all ranks: gradients, bucket by bucket, and the metrics beside them.
//!
//! [`bucket_sum`] is the trait of one bucket's sum, with implementations in [`host`] (a codec on the host) and [`device`] (a codec
//! on the device, MPI in device memory, NCCL). [`plan`] makes the buckets, [`transport`] picks the way between ranks, and [`gradients`]
//! carries out a step.

pub mod bucket_sum;
pub mod device;
pub mod gradients;
pub mod host;
pub mod metrics;
pub mod plan;
pub mod ranks;
pub mod transport;

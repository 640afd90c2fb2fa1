//! The sums of a step over all ranks: gradients, bucket by bucket, and metrics.
//!
//! [`bucket_sum`] has the trait for the sum of one bucket. It is implemented in [`host`] (a codec on the host) and
//! [`device`] (a codec on the device, MPI in device memory, NCCL). [`plan`] creates the buckets, [`transport`] chooses
//! the path between ranks, and [`gradients`] runs a step.

pub mod bucket_sum;
pub mod device;
pub mod gradients;
pub mod group;
pub mod host;
pub mod metrics;
pub mod plan;
pub mod ranks;
pub mod transport;

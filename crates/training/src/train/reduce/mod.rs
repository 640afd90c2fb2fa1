//! The sums of a step over all ranks: gradients, bucket by bucket, and metrics.
//!
//! [`bucket_sum`] has the trait for the sum of one bucket. [`host`] implements it with a codec on the host, and
//! [`device`] with a codec on the device, MPI in device memory, or NCCL. [`plan`] creates the buckets, [`transport`]
//! chooses how gradients get from rank to rank, and [`gradients`] sums the gradients of a step.

pub mod bucket_sum;
pub mod device;
pub mod gradients;
pub mod group;
pub mod host;
pub mod metrics;
pub mod plan;
pub mod ranks;
pub mod transport;

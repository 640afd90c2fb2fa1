//! One allreduce: gradients, bucket by bucket, and the vector of metrics beside them.

pub mod coded;
pub mod costs;
pub mod exchange;
pub mod metrics;
pub mod path;
pub mod reduction;
pub mod sync_bn;

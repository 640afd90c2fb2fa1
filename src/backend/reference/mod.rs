//! The oracle: every operation in plain loops over plain NCHW, f32 values with f64 accumulators. Slow, short, easy to check.

mod backend;
mod conv;
mod device;
mod dropout;
mod elementwise;
mod host_buf;
mod linear;
mod loss;
mod lrn;
mod norm;
mod pool;
mod shortcut;
mod update;

pub use device::Reference;
pub use host_buf::HostBuf;

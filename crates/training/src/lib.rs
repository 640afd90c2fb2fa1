//! The training loop ([`train`]), evaluation and prediction ([`eval`]) and benchmarks ([`mod@bench`]). [`launch`]
//! starts them on a device. It is the only place that names concrete backends, so generic code is compiled in this
//! crate and not in the command line.

pub mod bench;
pub mod device;
pub mod doctor;
mod error;
pub mod eval;
pub mod launch;
pub mod signals;
pub mod train;

pub use error::Error;

//! The training loop ([`train`]), scores and predictions ([`eval`]), benchmarks ([`mod@bench`]), and their start on a kind of device
//! ([`launch`], the one place that names a concrete backend, so that generic code is compiled here and not with the command line).

pub mod bench;
pub mod device;
pub mod doctor;
mod error;
pub mod eval;
pub mod launch;
pub mod signals;
pub mod train;

pub use error::Error;

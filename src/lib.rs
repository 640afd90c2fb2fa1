//! trireme trains image-classification networks data-parallel over MPI: one rank a GPU or a group of cores, every rank on its
//! own share of the data, one stroke a step, one model at the end.
//!
//! The data's way is a straight line: shard (mmap) -> order -> decode -> transforms, straight into a slot of the ring
//! (crate `loaders`) -> [`nn::Graph`] on a [`backend`] -> gradients, chunk by chunk, to the thread that owns MPI ([`comm`]) ->
//! [`optim`] -> [`report`], and on rank 0 [`checkpoint`]. [`train`] holds the loop, [`recipe`] what defines a run,
//! [`models`] the catalogue of networks, [`cli`] the command line.

pub mod backend;
pub mod bench;
mod bf16;
pub mod checkpoint;
pub mod cli;
mod code_spec;
pub mod comm;
pub mod cores;
pub mod device;
mod device_region;
pub mod doctor;
pub mod environment;
mod error;
pub mod eval;
pub mod interop;
pub mod launch;
pub mod libraries;
pub mod models;
pub mod nn;
pub mod optim;
pub mod recipe;
pub mod report;
pub mod schema;
pub mod screen;
pub mod signals;
mod simd;
mod sweep;
mod sync;
pub mod train;

pub use error::Error;

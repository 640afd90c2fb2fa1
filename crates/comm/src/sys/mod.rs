//! The raw MPI calls. Return codes are checked in release builds too.
//!
//! All `unsafe` code of this crate is in this folder. `world` has the typed collectives and splits long buffers.
//! `thread` determines which thread calls MPI.

mod communicator;
mod process;

pub(super) use communicator::{Communicator, Element, Op, OwnOp, current, integers, within};
pub(super) use process::{
    abort, compiled_family, exit_now, explain, finalize, has_cray_gtl, initialize, is_alive, library_version,
    processor_name, query_cuda_support, query_gpu_support,
};

//! The raw MPI calls, each with its return code checked, in release builds too.
//!
//! All `unsafe` code of communication is in this folder. Not here: the splitting of long buffers and the typed collectives
//! (`world`), and which thread calls (`thread`).

mod communicator;
mod fault;
mod gpu_support;
mod process;
mod reduction;
mod status;

pub(super) use communicator::Communicator;
pub(super) use fault::explain;
pub(super) use gpu_support::{has_cray_gtl, query_cuda_support, query_gpu_support};
pub(super) use process::{
    abort, compiled_family, exit_now, finalize, initialize, is_alive, library_version, processor_name,
};
pub(super) use reduction::{Element, Op, OwnOp, integers};

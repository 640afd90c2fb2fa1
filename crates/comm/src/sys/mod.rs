//! The raw MPI calls, each with its return code checked, in release builds too.
//!
//! All `unsafe` code of communication is in this folder. Not here: the splitting of long buffers and the typed collectives
//! (`world`), and which thread calls (`thread`).

mod communicator;
mod process;

pub(super) use communicator::{Communicator, Element, Op, OwnOp, current, integers, within};
pub(super) use process::{
    abort, compiled_family, exit_now, explain, finalize, has_cray_gtl, initialize, is_alive, library_version,
    processor_name, query_cuda_support, query_gpu_support,
};

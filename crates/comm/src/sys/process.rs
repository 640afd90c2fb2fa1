//! Start and end of MPI and of this process, names of the library and the node.

use std::ffi::c_int;

use mpi::ffi;

use super::status::{check, read_text};
use crate::error::Error;
use crate::family::Family;
use crate::thread_level::ThreadLevel;

/// Whether MPI is initialised and not yet finalised. Callable from any thread at any time.
pub(crate) fn is_alive() -> bool {
    let (mut initialized, mut finalized): (c_int, c_int) = (0, 0);
    // SAFETY: both may be called at any time, before MPI_Init and after MPI_Finalize too, from any thread.
    unsafe {
        ffi::MPI_Initialized(&mut initialized);
        ffi::MPI_Finalized(&mut finalized);
    }
    initialized != 0 && finalized == 0
}

/// Ends all ranks with exit code `code`. Returns only where the MPI library fails to end the process.
pub(crate) fn abort(code: i32) {
    // SAFETY: called only while MPI is alive. That other threads may be inside MPI meanwhile is outside the standard
    // below MPI_THREAD_MULTIPLE; what is lost with the process is lost in any case.
    unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) };
}

/// Ends this process now, without running the exit handlers of libraries whose threads are still at work.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit touches nothing of this process.
    unsafe { libc::_exit(code) }
}

/// Initialises MPI on the calling thread and makes its errors return; the answer is the thread level granted.
pub(crate) fn initialize() -> Result<ThreadLevel, Error> {
    let mut granted: c_int = 0;
    // SAFETY: called once per process (`thread` sees to it). MPI allows null for both arguments.
    let code = unsafe {
        ffi::MPI_Init_thread(std::ptr::null_mut(), std::ptr::null_mut(), ffi::RSMPI_THREAD_MULTIPLE, &mut granted)
    };
    check("MPI_Init_thread", code)?;
    // Errors that belong to no communicator go to MPI_COMM_WORLD's handler up to MPI 3.1, to MPI_COMM_SELF's from 4.0 on.
    // SAFETY: both communicators exist once MPI is initialised; the constants are the shim's.
    let codes = unsafe {
        [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF]
            .map(|comm| ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN))
    };
    for code in codes {
        check("MPI_Comm_set_errhandler", code)?;
    }
    // SAFETY: constants of the MPI shim.
    let levels = unsafe {
        [
            (ffi::RSMPI_THREAD_MULTIPLE, ThreadLevel::Multiple),
            (ffi::RSMPI_THREAD_SERIALIZED, ThreadLevel::Serialized),
            (ffi::RSMPI_THREAD_FUNNELED, ThreadLevel::Funneled),
        ]
    };
    let level = levels.iter().find(|(raw, _)| granted >= *raw);
    Ok(level.map_or(ThreadLevel::Single, |(_, level)| *level))
}

/// Finalises MPI; the calling thread must be the one that initialised it, and every other rank must do the same.
pub(crate) fn finalize() -> Result<(), Error> {
    // SAFETY: called by `thread` after the last communicator is freed.
    check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
}

unsafe extern "C" {
    safe fn trireme_mpi_family() -> c_int;
}

/// The family of MPI libraries that this program was compiled for; `None` for one that we do not know.
pub(crate) fn compiled_family() -> Option<Family> {
    match trireme_mpi_family() {
        1 => Some(Family::OpenMpi),
        2 => Some(Family::Mpich),
        _ => None,
    }
}

/// MPICH's MPI_MAX_LIBRARY_VERSION_STRING, the largest that there is: the loader may have found another library than this program was
/// compiled for.
const LONGEST_VERSION: usize = 8192;

/// Name and version of the MPI library, as it reports them.
pub(crate) fn library_version() -> String {
    let capacity = LONGEST_VERSION.max(ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize);
    read_text(capacity, |text, length| {
        // SAFETY: `read_text` gives a buffer of at least MPI_MAX_LIBRARY_VERSION_STRING bytes.
        unsafe { ffi::MPI_Get_library_version(text, length) }
    })
    .unwrap_or_else(|_| "unknown MPI".into())
}

/// This node's name (`MPI_Get_processor_name`).
pub(crate) fn processor_name() -> Result<String, Error> {
    let mut outcome = Ok(());
    let text = read_text(ffi::MPI_MAX_PROCESSOR_NAME as usize, |text, length| {
        // SAFETY: `read_text` gives a buffer of MPI_MAX_PROCESSOR_NAME bytes.
        let code = unsafe { ffi::MPI_Get_processor_name(text, length) };
        outcome = check("MPI_Get_processor_name", code);
        code
    });
    outcome.map(|()| text.unwrap_or_default())
}

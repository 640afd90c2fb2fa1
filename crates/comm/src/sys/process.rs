//! Starts and ends MPI and the process, handles fatal signals, and queries the library version, the node name and GPU
//! support.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use base::text::decimal;
use mpi::ffi;

use super::communicator::{check, read_text};
use crate::die;
use crate::error::{Error, ThreadLevel};
use crate::launcher::Family;

/// Returns true if MPI is initialised and not yet finalised. Can be called from any thread at any time.
pub(crate) fn is_alive() -> bool {
    let (mut initialized, mut finalized): (c_int, c_int) = (0, 0);
    // SAFETY: both functions may be called from any thread at any time, even before MPI_Init and after MPI_Finalize.
    unsafe {
        ffi::MPI_Initialized(&mut initialized);
        ffi::MPI_Finalized(&mut finalized);
    }
    initialized != 0 && finalized == 0
}

/// Ends all ranks with exit code `code`. Returns only if the MPI library fails to end the process.
pub(crate) fn abort(code: i32) {
    // SAFETY: called only while MPI is alive. Other threads may be inside MPI at this time, which the standard does not
    // allow below MPI_THREAD_MULTIPLE. The process ends here in any case.
    unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) };
}

/// Ends this process now. Skips the exit handlers of libraries, whose threads may still be running.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` does not access memory of this process.
    unsafe { libc::_exit(code) }
}

/// Initialises MPI on the calling thread, makes MPI errors return, and returns the granted thread level.
pub(crate) fn initialize() -> Result<ThreadLevel, Error> {
    let mut granted: c_int = 0;
    // SAFETY: called once per process (`thread` ensures that). MPI allows null for both arguments.
    let code = unsafe {
        ffi::MPI_Init_thread(std::ptr::null_mut(), std::ptr::null_mut(), ffi::RSMPI_THREAD_MULTIPLE, &mut granted)
    };
    check("MPI_Init_thread", code)?;
    // Errors that belong to no communicator go to the handler of MPI_COMM_WORLD up to MPI 3.1, and to that of
    // MPI_COMM_SELF since 4.0.
    // SAFETY: both communicators exist once MPI is initialised, and the constants come from the shim.
    let codes = unsafe {
        [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF]
            .map(|comm| ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN))
    };
    for code in codes {
        check("MPI_Comm_set_errhandler", code)?;
    }
    // SAFETY: these are constants of the MPI shim.
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

/// Finalises MPI. The calling thread must be the one that initialised it, and all ranks must call this.
pub(crate) fn finalize() -> Result<(), Error> {
    // SAFETY: `thread` calls this after the last communicator is freed.
    check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
}

unsafe extern "C" {
    safe fn trireme_mpi_family() -> c_int;
}

/// Returns the family of MPI libraries that this program was compiled for, or `None` if it is unknown.
pub(crate) fn compiled_family() -> Option<Family> {
    match trireme_mpi_family() {
        1 => Some(Family::OpenMpi),
        2 => Some(Family::Mpich),
        _ => None,
    }
}

/// MPICH's MPI_MAX_LIBRARY_VERSION_STRING, the largest of all libraries. The loader may have found another library than
/// the one that this program was compiled for.
const LONGEST_VERSION: usize = 8192;

/// Returns name and version of the MPI library as it reports them.
pub(crate) fn library_version() -> String {
    let capacity = LONGEST_VERSION.max(ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize);
    read_text(capacity, |text, length| {
        // SAFETY: `read_text` passes a buffer of at least MPI_MAX_LIBRARY_VERSION_STRING bytes.
        unsafe { ffi::MPI_Get_library_version(text, length) }
    })
    .unwrap_or_else(|_| "unknown MPI".into())
}

/// Returns this node's name (`MPI_Get_processor_name`).
pub(crate) fn processor_name() -> Result<String, Error> {
    let mut outcome = Ok(());
    let text = read_text(ffi::MPI_MAX_PROCESSOR_NAME as usize, |text, length| {
        // SAFETY: `read_text` passes a buffer of at least MPI_MAX_PROCESSOR_NAME bytes.
        let code = unsafe { ffi::MPI_Get_processor_name(text, length) };
        outcome = check("MPI_Get_processor_name", code);
        code
    });
    outcome.map(|()| text.unwrap_or_default())
}

// Messages for faults that end a process whose address space is limited. If an allocation fails, many libraries use the null pointer, and
// Rust's collections abort. Without these messages the process would end by a signal, and nothing would mention the limit.

/// The signals with their messages. They are formatted in advance because a signal handler cannot allocate memory.
static MESSAGES: OnceLock<[(c_int, String); 2]> = OnceLock::new();

/// Makes SIGSEGV and SIGABRT end the process with a message and exit code 1. The message contains `limit`, a description of the limit.
pub(crate) fn explain(limit: &str) {
    let text = |signal: &str| {
        format!(
            "ended by {signal}. The address space is limited ({limit}), so a library has probably failed to allocate memory: raise this \
             limit, or use a smaller batch or fewer --threads. If this happens without a limit, please report it\n"
        )
    };
    let messages = [(libc::SIGSEGV, text("SIGSEGV")), (libc::SIGABRT, text("SIGABRT"))];
    for (signal, _) in MESSAGES.get_or_init(|| messages) {
        // SAFETY: sigaction is a C struct for which all zeros is a valid value. The handler has the signature for no SA_SIGINFO and calls
        // only async-signal-safe functions. It runs on the alternate stack, because the fault may be a stack that cannot grow.
        unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_fault as *const () as usize;
            ours.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND;
            libc::sigemptyset(&mut ours.sa_mask);
            libc::sigaction(*signal, &ours, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_fault(signal: c_int) {
    let messages = MESSAGES.get().into_iter().flatten();
    let text = messages.filter(|(number, _)| *number == signal).map(|(_, text)| text.as_bytes()).next().unwrap_or(b"");
    let mut digits = [0; 20];
    let (before, rank, after): (&[u8], &[u8], &[u8]) = match die::rank_and_size() {
        Some((rank, size)) if size > 1 => (b"rank ", decimal(rank as u64, &mut digits), b": "),
        _ => (b"", b"", b""),
    };
    let parts = [before, rank, after, text]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: writev and _exit are async-signal-safe. Each iovec points to a live slice that is only read.
    unsafe {
        libc::writev(libc::STDERR_FILENO, parts.as_ptr(), parts.len() as c_int);
        libc::_exit(1)
    }
}

/// Returns a function that not every MPI library has, or `None` if this library lacks it.
fn optional(name: &std::ffi::CStr) -> Option<std::ptr::NonNull<c_void>> {
    // SAFETY: the name is a C string. The lookup searches the program and its libraries.
    std::ptr::NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// Returns the answer of `MPIX_Query_cuda_support` (Open MPI, MPICH, MVAPICH), or `None` if that function does not
/// exist.
pub(crate) fn query_cuda_support() -> Option<bool> {
    let function = optional(c"MPIX_Query_cuda_support")?;
    // SAFETY: where the function exists, it is `int MPIX_Query_cuda_support(void)`.
    let query: extern "C" fn() -> c_int = unsafe { std::mem::transmute(function.as_ptr()) };
    Some(query() == 1)
}

/// Returns the answer of `MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA)` (MPICH and its derivatives), or `None` if that
/// function does not exist or fails.
pub(crate) fn query_gpu_support() -> Option<bool> {
    /// The value of `MPIX_GPU_SUPPORT_CUDA`.
    const CUDA: c_int = 0;
    let function = optional(c"MPIX_GPU_query_support")?;
    // SAFETY: where the function exists, it is `int MPIX_GPU_query_support(int gpu_type, int *is_supported)`.
    let query: extern "C" fn(c_int, *mut c_int) -> c_int = unsafe { std::mem::transmute(function.as_ptr()) };
    let mut yes = 0;
    (query(CUDA, &mut yes) == ffi::MPI_SUCCESS as c_int).then_some(yes != 0)
}

/// Returns true if Cray's GPU transport layer for CUDA is loaded into this process.
pub(crate) fn has_cray_gtl() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("libmpi_gtl_cuda"))
}

//! Questions to the MPI library about GPU memory, which not every library has.

use std::ffi::{c_int, c_void};

use mpi::ffi;

/// A function of the MPI library that not every library has.
fn optional(name: &std::ffi::CStr) -> Option<std::ptr::NonNull<c_void>> {
    // SAFETY: the name is a C string; the program's own symbols and those of its libraries are searched.
    std::ptr::NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// What `MPIX_Query_cuda_support` answers (Open MPI, MPICH, MVAPICH); none where there is no such function.
pub(crate) fn query_cuda_support() -> Option<bool> {
    let function = optional(c"MPIX_Query_cuda_support")?;
    // SAFETY: wherever it exists it is `int MPIX_Query_cuda_support(void)`.
    let query: extern "C" fn() -> c_int = unsafe { std::mem::transmute(function.as_ptr()) };
    Some(query() == 1)
}

/// What `MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA)` answers (MPICH and its kin).
pub(crate) fn query_gpu_support() -> Option<bool> {
    /// MPIX_GPU_SUPPORT_CUDA.
    const CUDA: c_int = 0;
    let function = optional(c"MPIX_GPU_query_support")?;
    // SAFETY: wherever it exists it is `int MPIX_GPU_query_support(int gpu_type, int *is_supported)`.
    let query: extern "C" fn(c_int, *mut c_int) -> c_int = unsafe { std::mem::transmute(function.as_ptr()) };
    let mut yes = 0;
    (query(CUDA, &mut yes) == ffi::MPI_SUCCESS as c_int).then_some(yes != 0)
}

/// Whether Cray's GPU transport layer for CUDA is loaded into this process.
pub(crate) fn has_cray_gtl() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("libmpi_gtl_cuda"))
}

//! The return codes of NVIDIA's libraries as errors that name the call, what it was for, and the status in the library's words.

use cudarc::cublaslt::sys::cublasStatus_t;
use cudarc::cudnn::sys::cudnnStatus_t;
use cudarc::driver::sys::{CUresult, cuGetErrorName, cuGetErrorString};
use cudarc::nvrtc::sys::{nvrtcGetErrorString, nvrtcResult};

use crate::backend::Error;
use crate::backend::cuda::driver::library::{self, words};

/// Of the driver.
pub fn driver(status: CUresult, call: &'static str, op: impl Into<String>) -> Result<(), Error> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
    // SAFETY: both pointers are valid for the calls; the strings are the driver's own and constant.
    let status_words = unsafe {
        cuGetErrorName(status, &mut name);
        cuGetErrorString(status, &mut text);
        format!("{} ({})", words(name), words(text))
    };
    use CUresult::*;
    // a card that falls off the bus under a kernel's feet answers with the last two
    let gone = [
        CUDA_ERROR_DEVICE_UNAVAILABLE,
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_LAUNCH_FAILED,
        CUDA_ERROR_UNKNOWN,
    ];
    if gone.contains(&status) {
        return Err(Error::Lost { call, op: op.into(), status: status_words });
    }
    Err(Error::Foreign { library: "CUDA driver", call, op: op.into(), status: status_words })
}

/// The card's own failure, where that is why another library's call failed: the driver repeats it at every call from then on.
fn lost(call: &'static str, op: &str) -> Option<Error> {
    library::require(library::Library::Driver).ok()?;
    // SAFETY: the driver is there; without a context the call says so.
    let status = unsafe { cudarc::driver::sys::cuCtxSynchronize() };
    driver(status, call, op).err().filter(|error| matches!(error, Error::Lost { .. }))
}

/// Of the kernels' compiler.
pub fn nvrtc(status: nvrtcResult, call: &'static str, op: &str) -> Result<(), Error> {
    if status == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: the function takes a status and gives a constant string.
    let status = unsafe { words(nvrtcGetErrorString(status)) };
    Err(Error::Foreign { library: "NVRTC", call, op: op.into(), status })
}

/// Of cuDNN, with what it says of its last error.
pub fn cudnn(status: cudnnStatus_t, call: &'static str, op: &str) -> Result<(), Error> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0 as std::ffi::c_char; 512];
    // SAFETY: the buffer is as long as said, and one byte more than is written stays zero.
    let last = unsafe {
        cudarc::cudnn::sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len() - 1);
        words(text.as_ptr())
    };
    if let Some(lost) = lost(call, op) {
        return Err(lost);
    }
    let status = if last.is_empty() { format!("{status:?}") } else { format!("{status:?} ({last})") };
    Err(Error::Foreign { library: "cuDNN", call, op: op.into(), status })
}

/// Of cuBLASLt.
pub fn cublaslt(status: cublasStatus_t, call: &'static str, op: &str) -> Result<(), Error> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    let foreign = Error::Foreign { library: "cuBLASLt", call, op: op.into(), status: format!("{status:?}") };
    Err(lost(call, op).unwrap_or(foreign))
}

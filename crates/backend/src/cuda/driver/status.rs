//! Turns return codes of NVIDIA's libraries into errors that name the call, its purpose and the status in the library's
//! words.

use std::ffi::CStr;

use cudarc::cublaslt::sys::cublasStatus_t;
use cudarc::cudnn::sys::cudnnStatus_t;
use cudarc::driver::result::{DriverError, ctx};
use cudarc::driver::sys::CUresult;
use cudarc::nvrtc::sys::nvrtcResult;

use super::calls;
use super::load::{Library, require, words};
use super::switches::switches;
use crate::Error;

/// Checks a status of the driver.
pub fn driver(status: CUresult, call: &'static str, op: impl Into<String>) -> Result<(), Error> {
    if status == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(status, call, op)) }
}

fn owned(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Returns the error for a failure status.
fn failure(status: CUresult, call: &'static str, op: impl Into<String>) -> Error {
    let error = DriverError(status);
    let text = |found: Result<&CStr, DriverError>| found.map_or_else(|_| "no name".into(), owned);
    let status_words = format!("{} ({})", text(error.error_name()), text(error.error_string()));
    // while the driver starts, this process has no GPU that it could lose
    match sticky(status, switches().sync).filter(|_| call != "cuInit") {
        Some((what, cure)) => Error::Lost { what, call, op: op.into(), status: status_words, cure },
        None => Error::Foreign { library: "CUDA driver", call, op: op.into(), status: status_words },
    }
}

/// Returns cause and remedy for a status after which the context is unusable. The driver repeats such a status at every
/// call. With `sync` (TRIREME_CUDA_SYNC=1) the error names the failed operation.
fn sticky(status: CUresult, sync: bool) -> Option<(&'static str, &'static str)> {
    use CUresult::*;
    match status {
        CUDA_ERROR_ILLEGAL_ADDRESS
        | CUDA_ERROR_MISALIGNED_ADDRESS
        | CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUDA_ERROR_INVALID_PC
        | CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUDA_ERROR_ASSERT
        | CUDA_ERROR_LAUNCH_TIMEOUT => Some((KERNEL, if sync { KERNEL_CURE_SYNC } else { KERNEL_CURE })),
        CUDA_ERROR_DEVICE_UNAVAILABLE => Some((TAKEN, TAKEN_CURE)),
        // CUDA_ERROR_LAUNCH_FAILED and CUDA_ERROR_UNKNOWN also occur when a GPU drops off the bus while a kernel runs
        CUDA_ERROR_ECC_UNCORRECTABLE
        | CUDA_ERROR_NVLINK_UNCORRECTABLE
        | CUDA_ERROR_CONTEXT_IS_DESTROYED
        | CUDA_ERROR_EXTERNAL_DEVICE
        | CUDA_ERROR_LAUNCH_FAILED
        | CUDA_ERROR_UNKNOWN => Some((GONE, if sync { GONE_CURE_SYNC } else { GONE_CURE })),
        _ => None,
    }
}

const KERNEL: &str = "a kernel has failed on the GPU, and this process can no longer use the GPU";
const KERNEL_CURE: &str = "The failed kernel ran before this call. To find it, run again with TRIREME_CUDA_SYNC=1, \
                           which names the operation, or under `compute-sanitizer`, which names kernel and address. \
                           Please report it with the output of `trireme doctor`. The last checkpoint is intact";
const KERNEL_CURE_SYNC: &str = "The named operation failed. Run under `compute-sanitizer`, which names kernel and \
                                address. Please report it with the output of `trireme doctor`. The last checkpoint is \
                                intact";
const TAKEN: &str = "this process cannot use the GPU, because another process has it";
const TAKEN_CURE: &str = "`nvidia-smi` lists the processes and the compute mode of each GPU. End the other process, or use \
                          another GPU. Ranks can share a GPU only in the compute mode Default";
const GONE: &str = "the GPU is gone";
const GONE_CURE: &str = "Check `nvidia-smi` and `dmesg | grep -i xid` on this node, and resume from the last \
                         checkpoint. If it happens again on a healthy GPU, run with TRIREME_CUDA_SYNC=1, which names \
                         the operation, or under `compute-sanitizer`";
const GONE_CURE_SYNC: &str = "Check `nvidia-smi` and `dmesg | grep -i xid` on this node, and resume from the last \
                              checkpoint. If it happens again on a healthy GPU, the named operation failed: run under \
                              `compute-sanitizer`";

/// Returns the GPU's own error if it is the reason why a call of another library failed. Waits for the GPU, so that its
/// failure shows. See `Stream::lost` for a check that does not wait.
pub fn lost(call: &'static str, op: &str) -> Option<Error> {
    require(Library::Driver).ok()?;
    // without a context, this call fails with a status that is not fatal
    checked(ctx::synchronize(), call, op).err().and_then(Error::fatal)
}

/// Turns an error into `None` unless it is fatal. Returns an error only if no alternative can work either.
pub fn attempted<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    result.map(Some).or_else(|error| error.fatal().map_or(Ok(None), Err))
}

/// Checks the result of a driver call.
pub fn checked<T>(result: Result<T, DriverError>, call: &'static str, op: impl Into<String>) -> Result<T, Error> {
    result.map_err(|DriverError(status)| failure(status, call, op))
}

/// Checks a status of NVRTC.
pub fn nvrtc(status: nvrtcResult, call: &'static str, op: &str) -> Result<(), Error> {
    if status == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: the function takes a status and returns a constant string.
    let status = unsafe { words(calls::nvrtc::nvrtcGetErrorString(status)) };
    Err(Error::Foreign { library: "NVRTC", call, op: op.into(), status })
}

/// Checks a status of cuDNN. The error includes cuDNN's last message.
pub fn cudnn(status: cudnnStatus_t, call: &'static str, op: &str) -> Result<(), Error> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0 as std::ffi::c_char; 512];
    // SAFETY: at most `text.len() - 1` bytes are written, so the last byte stays zero.
    let last = unsafe {
        calls::cudnn::cudnnGetLastErrorString(text.as_mut_ptr(), text.len() - 1);
        words(text.as_ptr())
    };
    if let Some(lost) = lost(call, op) {
        return Err(lost);
    }
    let status = if last.is_empty() { format!("{status:?}") } else { format!("{status:?} ({last})") };
    Err(Error::Foreign { library: "cuDNN", call, op: op.into(), status })
}

/// Checks a status of cuBLASLt.
pub fn cublaslt(status: cublasStatus_t, call: &'static str, op: &str) -> Result<(), Error> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    let foreign = Error::Foreign { library: "cuBLASLt", call, op: op.into(), status: format!("{status:?}") };
    Err(lost(call, op).unwrap_or(foreign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_that_names_the_operation_is_suggested_only_if_it_is_not_set() {
        for status in [CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, CUresult::CUDA_ERROR_LAUNCH_FAILED] {
            let cure = |sync| sticky(status, sync).expect("a lost GPU").1;
            assert!(cure(false).contains("TRIREME_CUDA_SYNC=1"), "{}", cure(false));
            let told = cure(true);
            assert!(told.contains("named operation failed") && !told.contains("TRIREME_CUDA_SYNC"), "{told}");
        }
    }
}

//! Return codes as errors, with the library's own words.

use std::ffi::{c_char, c_int};

use mpi::ffi;

use crate::error::Error;
use crate::operation;

/// Turns a return code into an error with the library's words.
pub(super) fn check(call: &'static str, code: c_int) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut class = code;
    // SAFETY: `class` lives through the call. On failure it keeps the code itself.
    unsafe { ffi::MPI_Error_class(code, &mut class) };
    let text = read_text(ffi::MPI_MAX_ERROR_STRING as usize, |text, length| {
        // SAFETY: `read_text` gives a buffer of MPI_MAX_ERROR_STRING bytes, the most that this call writes.
        unsafe { ffi::MPI_Error_string(code, text, length) }
    });
    let text = text.unwrap_or_else(|code| format!("error code {code}"));
    Err(Error::Call { operation: operation::current().unwrap_or("MPI"), call, class, text })
}

/// Reads a string from an MPI call that fills a buffer of `capacity` bytes; the error is the call's code.
pub(super) fn read_text(capacity: usize, call: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Result<String, c_int> {
    // one byte more than the capacity: some libraries count the closing NUL, some do not
    let mut buffer = vec![0u8; capacity + 1];
    let mut length: c_int = 0;
    let code = call(buffer.as_mut_ptr().cast(), &mut length);
    if code != ffi::MPI_SUCCESS as c_int {
        return Err(code);
    }
    let length = usize::try_from(length).unwrap_or(0).min(capacity);
    let text = String::from_utf8_lossy(&buffer[..length]);
    Ok(text.trim_end_matches('\0').trim().to_string())
}

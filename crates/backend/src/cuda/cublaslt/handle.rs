//! cuBLASLt's handle.

use cudarc::cublaslt::sys;

use super::descriptor::Owned;
use crate::Error;

/// The library.
pub type Handle = Owned<sys::cublasLtHandle_t>;

impl Handle {
    /// The context must be bound.
    pub fn open() -> Result<Self, Error> {
        // SAFETY: the library is there, the pointer valid for the call.
        let create = |raw: &mut _| unsafe { sys::cublasLtCreate(raw) };
        Owned::new(std::ptr::null_mut(), "cublasLtCreate", create, sys::cublasLtDestroy)
    }
}

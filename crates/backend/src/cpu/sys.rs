//! oneDNN's C API as bindgen generates it, its status codes, and the three passes of its primitives.

pub use bindings::*;

// Without a use of the crate, its library would not be linked.
#[cfg(feature = "bundled-onednn")]
use onednn_src as _;

use crate::Error;

#[allow(warnings, clippy::all, clippy::undocumented_unsafe_blocks)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/onednn.rs"));
}

pub fn check(status: dnnl_status_t, call: &'static str, op: &str) -> Result<(), Error> {
    if status == dnnl_success {
        return Ok(());
    }
    let name = match status {
        bindings::dnnl_out_of_memory => "out of memory",
        bindings::dnnl_invalid_arguments => "invalid arguments",
        bindings::dnnl_unimplemented => "unimplemented",
        bindings::dnnl_runtime_error => "runtime error",
        bindings::dnnl_not_required => "not required",
        _ => "unknown",
    };
    Err(Error::Foreign { library: "oneDNN", call, op: op.into(), status: format!("{status} ({name})") })
}

/// An object that oneDNN creates and destroys.
pub trait Destroy {
    const DESTROY: unsafe extern "C" fn(*mut Self) -> dnnl_status_t;
}

macro_rules! destroy {
    ($($thing:ident by $call:ident,)*) => {
        $(impl Destroy for bindings::$thing {
            const DESTROY: unsafe extern "C" fn(*mut Self) -> dnnl_status_t = bindings::$call;
        })*
    };
}

destroy! {
    dnnl_engine by dnnl_engine_destroy,
    dnnl_stream by dnnl_stream_destroy,
    dnnl_memory by dnnl_memory_destroy,
    dnnl_primitive by dnnl_primitive_destroy,
    dnnl_primitive_attr by dnnl_primitive_attr_destroy,
    dnnl_primitive_desc by dnnl_primitive_desc_destroy,
    dnnl_post_ops by dnnl_post_ops_destroy,
}
#[cfg(onednn3)]
destroy!(dnnl_memory_desc by dnnl_memory_desc_destroy,);

/// A handle of oneDNN that is destroyed when it is dropped.
pub struct Owned<T: Destroy>(*mut T);

impl<T: Destroy> Owned<T> {
    /// Creates a handle with `make`. `call` is the name of the function, for messages.
    ///
    /// # Safety
    /// `make` must either fail or write the handle of an object that nothing else destroys.
    pub unsafe fn new(
        call: &'static str,
        op: &str,
        make: impl FnOnce(&mut *mut T) -> dnnl_status_t,
    ) -> Result<Self, Error> {
        let mut thing = Self(std::ptr::null_mut());
        check(make(&mut thing.0), call, op)?;
        Ok(thing)
    }

    /// Returns the handle for calls of oneDNN.
    pub fn raw(&self) -> *mut T {
        self.0
    }

    /// Returns the handle and never destroys it.
    #[cfg(onednn3)]
    pub fn into_raw(self) -> *mut T {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl<T: Destroy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and destroyed once, and null is accepted. Nothing can be done about an error.
        unsafe { T::DESTROY(self.0) };
    }
}

/// The pass that a primitive computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The forward pass, which computes y from x and w.
    Forward,
    /// The input gradient: dx from dy and w.
    BackwardData,
    /// The weight and bias gradients: dw and db from x and dy.
    BackwardWeights,
}

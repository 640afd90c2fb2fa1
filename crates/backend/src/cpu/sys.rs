//! oneDNN's C API as bindgen reads it, its statuses, and the passes that its primitives compute.

pub use bindings::*;

// without a use of it its library would not be linked
#[cfg(feature = "bundled-onednn")]
use onednn_src as _;

use crate::Error;

#[allow(warnings, clippy::all, clippy::undocumented_unsafe_blocks)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/onednn.rs"));
}

/// Fails unless a call succeeded.
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

/// Which of the three passes a primitive computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    BackwardData,
    /// dw, db from x and dy.
    BackwardWeights,
}

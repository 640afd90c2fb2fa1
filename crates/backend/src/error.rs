//! Errors of devices.

/// The error message for an operation that cannot read a flattened image.
pub(crate) const READS_FLATTENED: &str = "this layer reads a flattened image, whose values have another order in memory than those of a \
                                          vector; put a linear layer between the flattened image and this layer";

/// A failure of a device, or a request that it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of a library failed.
    #[error("{library}: {call} for {op} returned {status}. {}", foreign_cure(library, call))]
    Foreign {
        library: &'static str,
        /// Name of the library's function.
        call: &'static str,
        /// The node's name or the call's purpose.
        op: String,
        /// The status, by name if it is known.
        status: String,
    },
    /// An operation that this device cannot run.
    #[error("{op}: {why}")]
    Unsupported {
        /// The node's name, or the setting that cannot be used.
        op: String,
        /// The missing feature, and what to do.
        why: String,
    },
    /// Memory could not be allocated.
    #[error(
        "cannot allocate {bytes} bytes of memory for {what}; try a smaller batch{}",
        loaders::memory::limits_cure()
    )]
    Memory { what: String, bytes: usize },
    /// A device, its driver or one of its libraries is missing, or too old for the others.
    #[error("{what}: {why}")]
    Absent {
        what: String,
        /// The missing part, where trireme searched for it, and what to do.
        why: String,
    },
    /// This process can no longer use the device: every further call fails too.
    #[error("{what}: {call} for {op} returned {status}. {cure}")]
    Lost {
        what: &'static str,
        /// The function that reported the failure. An earlier call may be the cause.
        call: &'static str,
        /// The node's name or the call's purpose.
        op: String,
        status: String,
        cure: &'static str,
    },
    #[error("out of device memory: {what} needs {need}, {have}")]
    DeviceMemory {
        what: String,
        /// Bytes needed in total and for each part, as text.
        need: String,
        /// Free memory, and what would fit.
        have: String,
    },
    /// A sum over ranks failed.
    #[error("{why}")]
    Across {
        /// The error of the communication, which names the sum.
        why: String,
    },
    /// Sizes that contradict the plan.
    #[error("{op}: expected {expected}, got {got}")]
    Size {
        /// Name of the node or the call.
        op: String,
        expected: String,
        got: String,
    },
}

/// Returns the advice for a failed call of a library. Calls that allocate memory can succeed with a smaller batch.
fn foreign_cure(library: &str, call: &str) -> &'static str {
    match library {
        _ if call == "cuInit" => "The driver is installed, but it does not start. `nvidia-smi` on this node shows why",
        "NCCL" => "Set NCCL_DEBUG=INFO to see what NCCL tried, or use reduce.path = \"staged\"",
        "CUDA driver" | "cuDNN" | "cuBLASLt" | "oneDNN" => {
            "Try a smaller batch, or report this with the output of `trireme doctor`"
        }
        _ => "Please report this with the output of `trireme doctor`",
    }
}

impl Error {
    /// Returns the error if the device is unusable after it, so that trying something else is pointless. Otherwise
    /// returns `None`.
    pub fn fatal(self) -> Option<Self> {
        matches!(self, Error::Lost { .. }).then_some(self)
    }
}

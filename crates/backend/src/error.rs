//! What can go wrong on a device.

/// A failure of a device, or a request that it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of a library returned a status other than success.
    #[error(
        "{library}: {call} for {op} answered {status}; try a smaller batch, or report this with `trireme doctor`'s output"
    )]
    Foreign {
        /// Library and version.
        library: &'static str,
        /// The function.
        call: &'static str,
        /// Node or purpose.
        op: String,
        /// Its status, named where known.
        status: String,
    },
    /// An operation that this device does not run.
    #[error("{op}: {why}")]
    Unsupported {
        /// Node.
        op: String,
        /// What is missing and what to do.
        why: String,
    },
    /// Memory that could not be allocated.
    #[error(
        "no {bytes} bytes of memory for {what}; try a smaller batch or more ranks{}",
        loaders::memory::limits_cure()
    )]
    Memory {
        /// Its purpose.
        what: String,
        /// Bytes requested.
        bytes: usize,
    },
    /// A device, its driver or one of its libraries that is missing, or too old for the others.
    #[error("{what}: {why}")]
    Absent {
        /// The kind of device.
        what: String,
        /// What is missing, where it was looked for, and what to do.
        why: String,
    },
    /// A device that this process can use no more: every further call fails, too.
    #[error("{what}: {call} for {op} answered {status}; {cure}")]
    Lost {
        /// What has happened.
        what: &'static str,
        /// The function that told of it; an earlier one may have caused it.
        call: &'static str,
        /// Node or purpose.
        op: String,
        /// Its status.
        status: String,
        /// What to try.
        cure: &'static str,
    },
    /// A device's memory is too small.
    #[error("out of device memory: {what} needs {need}, {have}")]
    DeviceMemory {
        /// Its purpose.
        what: String,
        /// Per part.
        need: String,
        /// What is free, and what would fit.
        have: String,
    },
    /// A sum over ranks that failed in the middle of a pass.
    #[error("batch normalisation over all ranks: {why}")]
    Across {
        /// The communication's error.
        why: String,
    },
    /// Sizes that contradict the plan.
    #[error("{op}: expected {expected}, got {got}")]
    Size {
        /// Node or call.
        op: String,
        /// What the plan says.
        expected: String,
        /// What was given.
        got: String,
    },
}

impl Error {
    /// The error itself where it leaves the device of no use, so that nothing else can be tried on it; none otherwise.
    pub fn fatal(self) -> Option<Self> {
        matches!(self, Error::Lost { .. }).then_some(self)
    }
}

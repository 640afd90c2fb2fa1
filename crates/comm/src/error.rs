//! The error type of this crate, and MPI's thread levels.

/// An error from MPI, from its start, or from the thread that owns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An MPI call returned something other than `MPI_SUCCESS`.
    #[error(
        "{operation}: {call} failed: {text} (MPI error class {class}). If another rank failed first, see its message; otherwise check \
         the network between the nodes"
    )]
    Call {
        /// The name of the operation in progress, as passed to [`Comm::start`](super::Comm::start).
        operation: &'static str,
        call: &'static str,
        /// The error class (`MPI_Error_class`), which has the same meaning in all MPI libraries.
        class: i32,
        /// The library's description of the error (`MPI_Error_string`).
        text: String,
    },
    /// MPI allows calls only from the thread that initialised it.
    #[error(
        "MPI ({library}) grants only thread level {granted}, but trireme needs at least MPI_THREAD_SERIALIZED. Use an MPI built with \
         thread support"
    )]
    ThreadLevel {
        granted: ThreadLevel,
        /// Name and version of the MPI library.
        library: String,
    },
    /// The program, the MPI library and mpirun belong to different MPI families.
    #[error("{0}")]
    Family(String),
    /// The known-answer test at the start found that MPI computes wrong results.
    #[error(
        "known-answer test of {operation} over {ranks} ranks: element {index} of {length} should be {expected}, got {got}. This MPI \
         computes wrong results. Check that all nodes use the same MPI library and the same build of trireme (`ldd trireme`), and try \
         another transport (Open MPI: --mca pml ob1 --mca btl self,tcp)"
    )]
    KnownAnswer {
        /// The reduction, for example `sum of f32`.
        operation: &'static str,
        ranks: usize,
        /// Index of the first wrong element.
        index: usize,
        length: usize,
        expected: String,
        got: String,
    },
    /// A value cannot be sent to other ranks because JSON cannot represent it, for example a path that is not UTF-8.
    #[error("{what}: a value cannot be sent to other ranks: {why}")]
    Unsendable { what: &'static str, why: String },
    /// A value from another rank cannot be read.
    #[error("{what}: a value from another rank cannot be read: {why}. Do all ranks run the same build of trireme?")]
    Value { what: &'static str, why: String },
    /// Rank 0 announced more bytes than this machine can allocate.
    #[error("broadcast of {bytes} bytes from rank 0: this rank has not enough memory to receive them")]
    Memory { bytes: u64 },
    /// The operating system could not create the MPI thread.
    #[error("cannot start the thread that owns MPI: {0}. Is the limit on processes reached (ulimit -u)?")]
    Spawn(String),
    /// MPI was launched a second time. MPI can be initialised only once per process.
    #[error("MPI was already launched in this process")]
    Twice,
    /// An operation was started after [`Comm::finish`](super::Comm::finish).
    #[error("{what}: MPI was already shut down")]
    Finished { what: &'static str },
    /// An operation was waited for from inside another operation. This would deadlock.
    #[error("{what}: cannot wait for this inside another MPI operation, because that would block forever")]
    Inside { what: &'static str },
}

/// MPI's thread levels (`MPI_THREAD_*`), lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process may have only one thread.
    Single,
    /// Only the thread that initialised MPI may call it.
    Funneled,
    /// Any thread may call MPI, but only one at a time.
    Serialized,
    /// Any thread may call MPI at any time.
    Multiple,
}

impl std::fmt::Display for ThreadLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Single => "MPI_THREAD_SINGLE",
            Self::Funneled => "MPI_THREAD_FUNNELED",
            Self::Serialized => "MPI_THREAD_SERIALIZED",
            Self::Multiple => "MPI_THREAD_MULTIPLE",
        })
    }
}

//! What can go wrong in communication.

/// An error of MPI, of its set-up, or of the thread that owns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An MPI call returned something other than `MPI_SUCCESS`.
    #[error(
        "{operation}: {call} failed: {text} (MPI error class {class}). If another rank failed first, its message tells \
         more; else check the network between the nodes"
    )]
    Call {
        /// The operation under way, by the name given to [`Comm::start`](super::Comm::start).
        operation: &'static str,
        /// The MPI function.
        call: &'static str,
        /// The error's class (`MPI_Error_class`), comparable between MPI libraries.
        class: i32,
        /// The library's own words (`MPI_Error_string`).
        text: String,
    },
    /// MPI cannot be called from a thread of ours.
    #[error(
        "MPI grants thread level {granted}, at least MPI_THREAD_SERIALIZED is needed: use an MPI built with thread \
         support ({library})"
    )]
    ThreadLevel {
        /// The level granted.
        granted: ThreadLevel,
        /// The library's name and version.
        library: String,
    },
    /// The program, the MPI library and the mpirun are not of one family.
    #[error("{0}")]
    Family(String),
    /// The probe at the start found that this MPI adds wrongly.
    #[error(
        "known-answer test of {operation} over {ranks} ranks: element {index} of {length} should be {expected}, got \
         {got}. This MPI does not compute what it should: check that all nodes use one MPI library and one build of \
         trireme (`ldd trireme`), and try another transport (Open MPI: --mca pml ob1 --mca btl self,tcp)"
    )]
    KnownAnswer {
        /// Which reduction, for example `sum of f32`.
        operation: &'static str,
        /// Number of ranks.
        ranks: usize,
        /// Index of the first wrong element.
        index: usize,
        /// Number of elements reduced.
        length: usize,
        /// The right value.
        expected: String,
        /// The value that arrived.
        got: String,
    },
    /// A value for other ranks that JSON cannot hold, such as a path that is not UTF-8.
    #[error("{what}: a value cannot be sent to other ranks: {why}")]
    Unsendable {
        /// The operation's name.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A value from another rank that cannot be read.
    #[error("{what}: a value from another rank cannot be read: {why}. Do all ranks run the same build of trireme?")]
    Value {
        /// The operation's name.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A peer announced more bytes than this machine can hold.
    #[error("broadcast of {bytes} bytes from rank {root}: not enough memory here to receive them")]
    Memory {
        /// Length announced.
        bytes: u64,
        /// The rank that sends.
        root: usize,
    },
    /// The root of a broadcast is no rank.
    #[error("broadcast from rank {root}, but there are only ranks 0 to {}", .size - 1)]
    Root {
        /// The requested root.
        root: usize,
        /// Number of ranks.
        size: usize,
    },
    /// The operating system refused the thread for MPI.
    #[error("cannot start the thread that owns MPI: {0}. Is the limit on processes reached (ulimit -u)?")]
    Spawn(String),
    /// MPI can be initialised once in a process.
    #[error("MPI was already launched in this process")]
    Twice,
    /// Work was sent after [`Comm::finish`](super::Comm::finish).
    #[error("MPI is already finished: {what} came too late")]
    Finished {
        /// The operation's name.
        what: &'static str,
    },
    /// An operation that waits for itself.
    #[error("{what} was waited for inside another MPI operation, which would wait forever")]
    Inside {
        /// The operation's name.
        what: &'static str,
    },
}

/// What MPI allows threads to do (`MPI_THREAD_*`), lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// Only one thread may exist.
    Single,
    /// Only the thread that initialised MPI may call it.
    Funneled,
    /// Any thread may call, one at a time.
    Serialized,
    /// Any thread may call at any time.
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

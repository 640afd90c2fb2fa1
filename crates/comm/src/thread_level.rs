//! The thread levels of MPI.

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

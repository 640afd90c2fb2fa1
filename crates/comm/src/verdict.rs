//! Outcome of a check of how the ranks were started.

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing wrong.
    Ok,
    /// Worth a line on rank 0's terminal; the run may go on.
    Warning(String),
    /// The run would compute something else than the user wants; it must end. The text holds the cure.
    Fatal(String),
}

//! How much of a run is shown on stderr. The log file of the run has all of it, whatever is shown.

/// Name of the log file.
pub const LOG: &str = "run.log";

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Warnings and errors.
    Quiet,
    /// Progress, scores, and what a user may want to change.
    #[default]
    Normal,
    /// All facts: ranks, devices, libraries, memory, waits, files.
    Verbose,
}

impl Verbosity {
    /// Whether a line of text is shown that is no fact.
    pub(super) fn shows(self, text: &str) -> bool {
        self > Verbosity::Quiet || text.starts_with("warning")
    }

    /// Whether facts are shown.
    pub(super) fn shows_facts(self) -> bool {
        self == Verbosity::Verbose
    }
}

//! Exit codes, and the error that a subcommand ends with.

/// Done.
pub const DONE: u8 = 0;
/// Failed: the data, the machine or the run.
pub const FAILED: u8 = 1;
/// The request makes no sense.
pub const USAGE: u8 = 2;
/// Stopped early; `--resume auto` goes on (EX_TEMPFAIL of sysexits.h).
pub const RESUMABLE: u8 = 75;

/// Why a subcommand ends without being done. `main` prints the message and exits with the code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// One of the codes of this module.
    pub code: u8,
    /// What happened, and what to try.
    pub message: String,
}

impl Failure {
    /// A failure with code [`FAILED`].
    pub fn failed(message: impl ToString) -> Self {
        Failure { code: FAILED, message: message.to_string() }
    }

    /// A failure with code [`USAGE`].
    pub fn usage(message: impl ToString) -> Self {
        Failure { code: USAGE, message: message.to_string() }
    }
}

impl From<training::Error> for Failure {
    /// Empty if another rank has printed the message.
    fn from(error: training::Error) -> Self {
        use training::Error;
        let code = error.code();
        match error {
            Error::Elsewhere { .. } => Failure { code, message: String::new() },
            error => Failure { code, message: error.to_string() },
        }
    }
}

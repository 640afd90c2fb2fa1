//! Standard output, exit codes and errors of subcommands. Only results for scripts go to stdout, everything else goes
//! to stderr.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::process::parent_id;
use std::path::Path;

use base::text::printable_lines;

/// Writes `text` and a line break to stdout, without control characters that a terminal would interpret. A closed pipe
/// (`| head`) is not an error, a full disk is.
pub fn print(text: impl Display) -> Result<(), Failure> {
    write(&mut io::stdout().lock(), text)
}

/// Returns true if the output goes to a terminal, not to a program or a file. Open MPI gives every rank a
/// pseudo-terminal, so under a launcher the launcher's own output decides.
pub fn is_read_by_people() -> bool {
    let of_launcher = || std::fs::read_link(format!("/proc/{}/fd/1", parent_id())).unwrap_or_default();
    io::stdout().is_terminal() && (comm::launcher().is_none() || is_terminal(&of_launcher()))
}

fn is_terminal(file: &Path) -> bool {
    file.starts_with("/dev/pts") || file.to_string_lossy().starts_with("/dev/tty")
}

fn write(out: &mut dyn Write, text: impl Display) -> Result<(), Failure> {
    match writeln!(out, "{}", printable_lines(&text.to_string())).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!("cannot write to stdout: {e}"))),
        _ => Ok(()),
    }
}

/// Exit code: the command is done.
pub const DONE: u8 = 0;
/// Exit code: the data, the machine or the run caused a failure.
pub const FAILED: u8 = 1;
/// Exit code: the command line is wrong.
pub const USAGE: u8 = 2;
/// Exit code: the run stopped early and can continue with `--resume auto` (EX_TEMPFAIL of sysexits.h).
pub const RESUMABLE: u8 = 75;

/// The failure of a subcommand. `main` prints the message and exits with the code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// An exit code of this module.
    pub code: u8,
    /// What happened, and what to try.
    pub message: String,
}

impl Failure {
    /// Creates a failure with code [`FAILED`].
    pub fn failed(message: impl ToString) -> Self {
        Failure { code: FAILED, message: message.to_string() }
    }

    /// Creates a failure with code [`USAGE`].
    pub fn usage(message: impl ToString) -> Self {
        Failure { code: USAGE, message: message.to_string() }
    }
}

impl From<training::Error> for Failure {
    /// The message is empty if another rank has printed it.
    fn from(error: training::Error) -> Self {
        use training::Error;
        let code = error.code();
        match error {
            Error::OtherRank { .. } => Failure { code, message: String::new() },
            error => Failure { code, message: error.to_string() },
        }
    }
}

impl From<data_tools::Error> for Failure {
    fn from(error: data_tools::Error) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failed(error) }
    }
}

impl From<loaders::Error> for Failure {
    fn from(error: loaders::Error) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failed(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn a_closed_pipe_is_fine_and_a_full_disk_is_not() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        assert!(write(&mut writer, "x").is_ok());
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let failure = write(&mut full, "x").unwrap_err();
        assert_eq!(failure.code, FAILED, "{failure}");
        mentions(failure, &["stdout", "No space left"]);
    }
}

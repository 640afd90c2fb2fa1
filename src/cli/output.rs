//! Standard output, for results that a script may want, and how a subcommand ends: exit codes and errors. Everything else goes to stderr.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::process::parent_id;
use std::path::Path;

use loaders::printable_lines;
use training::launch;

/// Writes `text` and a line break to stdout, without anything that a terminal would act on. A reader that has gone (`| head`) is no
/// failure; a full disk is.
pub fn print(text: impl Display) -> Result<(), Failure> {
    write(&mut io::stdout().lock(), text)
}

/// Whether what is printed goes to a terminal, not to a program or a file. Open MPI gives every rank a terminal of its own, whatever reads
/// its output; there its own output counts.
pub fn is_read_by_people() -> bool {
    let of_launcher = || std::fs::read_link(format!("/proc/{}/fd/1", parent_id())).unwrap_or_default();
    io::stdout().is_terminal() && (!launch::has_launcher() || is_terminal(&of_launcher()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_fine_and_a_full_disk_is_not() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        assert!(write(&mut writer, "x").is_ok());
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let failure = write(&mut full, "x").unwrap_err();
        assert!(failure.message.starts_with("cannot write to stdout: No space left"), "{failure}");
    }
}

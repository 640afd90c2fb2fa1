//! Standard output, for results that a script may want. Everything else goes to stderr.

use super::exit::Failure;
use loaders::printable_lines;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes `text` and a line break to stdout, without anything that a terminal would act on. A reader that has gone (`| head`) is no
/// failure; a full disk is.
pub fn print(text: impl Display) -> Result<(), Failure> {
    write(&mut io::stdout().lock(), text)
}

fn write(out: &mut dyn Write, text: impl Display) -> Result<(), Failure> {
    match writeln!(out, "{}", printable_lines(&text.to_string())).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!("cannot write to stdout: {e}"))),
        _ => Ok(()),
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

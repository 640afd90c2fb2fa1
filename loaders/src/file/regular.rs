//! Opening the files of a data set. They must be regular files: opening a FIFO in the place of a shard would block its rank, and with
//! it all others, until somebody writes to it.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
/// What the system says; for anything but a regular file at once, a FIFO too.
pub fn open(path: &Path) -> io::Result<File> {
    // O_NONBLOCK: without it opening a FIFO blocks. It does not change reads of regular files.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {}, no regular file", describe(kind)))),
    }
}

/// Reads the text of a regular file.
pub(crate) fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_at_once() {
        let fifo = std::env::temp_dir().join(format!("trireme-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let refused = |path: &Path| open(path).unwrap_err().to_string();
        assert_eq!(refused(&fifo), "it is a FIFO, no regular file");
        std::fs::remove_file(&fifo).unwrap();
        assert_eq!(refused(&std::env::temp_dir()), "it is a folder, no regular file");
        assert_eq!(refused(Path::new("/dev/null")), "it is a device, no regular file");
        assert!(read_to_string(Path::new("/proc/self/status")).unwrap().starts_with("Name:"));
    }
}

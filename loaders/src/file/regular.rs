//! Opens files of data sets and their sources. They must be regular files: opening a FIFO in place of a shard would
//! block its rank, and so all ranks, until someone writes to the FIFO.

use crate::stall::during;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
///
/// Returns the system's error, or an error for a FIFO, a directory or a device.
pub fn open(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a FIFO blocks. The flag does not affect reads of regular files.
    let (file, kind) = during("opening", path, || {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let kind = file.metadata()?.file_type();
        io::Result::Ok((file, kind))
    })?;
    match kind.is_file() {
        true => Ok(file),
        false => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {}, not a regular file", describe(kind))))
        }
    }
}

/// Reads a regular file.
///
/// # Errors
///
/// Returns the same errors as [`open`], and errors while reading.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = open(path)?;
    // Reserve one byte more than the file has. Then the end of the file is detected without growing the buffer.
    bytes
        .try_reserve_exact((file.metadata()?.len() as usize).saturating_add(1))
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    during("reading", path, || file.read_to_end(&mut bytes))?;
    Ok(bytes)
}

/// Reads the text of a regular file.
///
/// # Errors
///
/// Returns the same errors as [`open`], and errors while reading. Text that is not UTF-8 is an error.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = open(path)?;
    during("reading", path, || file.read_to_string(&mut text))?;
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
    fn open_refuses_fifos_without_blocking() {
        let fifo = std::env::temp_dir().join(format!("trireme-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let refused = |path: &Path, what: &str| {
            let error = open(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        };
        refused(&fifo, "a FIFO");
        std::fs::remove_file(&fifo).unwrap();
        refused(&std::env::temp_dir(), "a folder");
        refused(Path::new("/dev/null"), "a device");
        assert!(read_to_string(Path::new("/proc/self/status")).unwrap().starts_with("Name:"));
    }
}

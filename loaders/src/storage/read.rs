//! Reads that return all bytes, or an error that says where the file ended.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::Error;
use crate::file::regular;

/// Opens a regular file.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    regular::open(path).map_err(Error::io("open", path))
}

/// The length of an open file.
pub(crate) fn length(file: &File, path: &Path) -> Result<u64, Error> {
    Ok(file.metadata().map_err(Error::io("read the size of", path))?.len())
}

/// Reads the whole file.
pub(crate) fn whole(path: &Path) -> Result<Vec<u8>, Error> {
    let file = open(path)?;
    let length = length(&file, path)? as usize;
    let mut bytes = Vec::new();
    let no_memory = |_| Error::io("find memory for", path)(io::ErrorKind::OutOfMemory.into());
    bytes.try_reserve_exact(length).map_err(no_memory)?;
    // into the reserved memory without clearing it first, in reads as long as the system allows
    (&file).take(length as u64).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    match bytes.len() {
        got if got < length => Err(short(path, 0, length, got)),
        _ => Ok(bytes),
    }
}

/// Fills `buffer` with the bytes at `offset`.
pub(crate) fn exact_at(file: &File, path: &Path, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(short(path, offset, buffer.len(), done)),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", path)(e)),
        }
    }
    Ok(())
}

/// The error of a file that ended early.
pub(crate) fn short(path: &Path, offset: u64, expected: usize, got: usize) -> Error {
    Error::ShortRead { path: path.to_owned(), offset, expected: expected as u64, got: got as u64 }
}

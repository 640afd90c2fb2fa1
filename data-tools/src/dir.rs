//! Folders on disk: whether one is there, and its entries made durable.

use crate::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Refuses a path that does not exist, or is not a folder.
pub(crate) fn check(dir: &Path, hint: &str) -> Result<(), Error> {
    match fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(Error::input(dir, format!("not a folder; {hint}"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(Error::Missing { path: dir.to_path_buf(), hint: hint.to_string() })
        }
        Err(e) => Err(Error::io("read", dir, e)),
    }
}

/// Makes the entries of a folder durable; the empty path is the current folder.
pub(crate) fn sync(dir: &Path) -> Result<(), Error> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io("sync the folder", dir, e))
}

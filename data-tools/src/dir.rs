//! Folders on disk: whether one is there, and its entries made durable.

use crate::error::Error;
use loaders::regular;
use loaders::stall::during;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Refuses a path that does not exist, or is not a folder.
pub(crate) fn check(dir: &Path, hint: &str) -> Result<(), Error> {
    match fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) if is_zip(dir) => Err(zip(dir)),
        Ok(_) => Err(Error::input(dir, format!("not a folder; {hint}"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(Error::Missing { path: dir.to_path_buf(), hint: hint.to_string() })
        }
        Err(e) => Err(Error::io("read", dir, e)),
    }
}

/// Whether a file is a ZIP archive, by its first bytes.
pub(crate) fn is_zip(path: &Path) -> bool {
    let mut head = [0; 4];
    let read = regular::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"PK\x03\x04"
}

/// What to do with a ZIP archive.
pub(crate) fn zip(path: &Path) -> Error {
    let what = "a ZIP archive: unpack it (unzip FILE -d DIR, or python3 -m zipfile -e FILE DIR) and give that folder";
    Error::input(path, what)
}

/// Makes the entries of a folder durable; the empty path is the current folder.
pub(crate) fn sync(dir: &Path) -> Result<(), Error> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    during("syncing", dir, || File::open(dir).and_then(|d| d.sync_all()))
        .map_err(|e| Error::io("sync the folder", dir, e))
}

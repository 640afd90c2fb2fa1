//! Helpers for folders: check that a folder exists, list its entries, sync it to disk.

use crate::error::Error;
use loaders::regular;
use loaders::stall::during;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Returns an error if `dir` does not exist or is not a folder. `hint` completes the message with the expected content.
pub(crate) fn check(dir: &Path, hint: &str) -> Result<(), Error> {
    match fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) if is_zip(dir) => Err(zip(dir)),
        Ok(_) => Err(Error::input(dir, format!("not a folder; {hint}"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::missing(dir, hint)),
        Err(e) => Err(Error::io("read", dir, e)),
    }
}

/// Returns an error if `src` is missing or a folder. In a folder, the file `example` is expected. Special files are
/// rejected when they are opened.
pub(crate) fn check_file(src: &Path, example: &str, hint: &str) -> Result<(), Error> {
    match src.try_exists() {
        Ok(true) if !src.is_dir() => Ok(()),
        Ok(true) => Err(Error::missing(src.join(example), format!("SRC is a folder; {hint}"))),
        Ok(false) => Err(Error::missing(src, hint)),
        Err(e) => Err(Error::io("read", src, e)),
    }
}

/// Returns true if the file begins with the signature of a ZIP archive.
pub(crate) fn is_zip(path: &Path) -> bool {
    let mut head = [0; 4];
    let read = regular::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"PK\x03\x04"
}

pub(crate) fn zip(path: &Path) -> Error {
    let what =
        "this is a ZIP archive; unpack it (unzip FILE -d DIR, or python3 -m zipfile -e FILE DIR) and pass that folder";
    Error::input(path, what)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub name: String,
    /// True for a folder, and for a link to one.
    pub is_dir: bool,
}

/// Returns the entries of a folder, sorted by name. Skips hidden files and `__MACOSX`.
pub(crate) fn entries(dir: &Path) -> Result<Vec<Entry>, Error> {
    during("listing", dir, || listed(dir))
}

fn listed(dir: &Path) -> Result<Vec<Entry>, Error> {
    let failed = |e| Error::io("read", dir, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(Error::input(&entry.path(), "the name is not valid UTF-8; rename the file"));
        };
        // macOS adds this folder to ZIP archives. It contains no images.
        if name.starts_with('.') || name == "__MACOSX" {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        // A link counts as its target. A dangling link counts as a file, so that reading it reports the error.
        let is_dir = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
        found.push(Entry { name, is_dir });
    }
    found.sort();
    Ok(found)
}

/// Returns the sorted names of the folders in `dir`.
pub(crate) fn folders(dir: &Path) -> Result<Vec<String>, Error> {
    Ok(entries(dir)?.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name).collect())
}

/// Extensions of pictures, in lower case.
pub(crate) const PICTURES: [&str; 8] = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"];

/// Returns true if the file name has one of these endings, which are in lower case and have no dot.
pub(crate) fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
    ending.is_some_and(|ending| endings.contains(&ending.as_str()))
}

/// Syncs a folder, so that new and renamed entries survive a crash. The empty path means the current folder.
pub(crate) fn sync(dir: &Path) -> Result<(), Error> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    during("syncing", dir, || File::open(dir).and_then(|d| d.sync_all()))
        .map_err(|e| Error::io("sync the folder", dir, e))
}

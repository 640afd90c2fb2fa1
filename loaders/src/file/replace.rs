//! Writing a small file whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Writes `bytes` to a temporary file beside `path`, syncs it, renames it to `path` and syncs the folder. On failure nothing is left
/// behind and an old file stays as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = suffixed(path, ".tmp");
    let result = write_and_rename(path, &temporary, bytes);
    if result.is_err() {
        // the failure itself is reported; there may be nothing to remove
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn write_and_rename(path: &Path, temporary: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = File::create(temporary).map_err(Error::io("create", temporary))?;
    file.write_all(bytes).map_err(Error::io("write", temporary))?;
    file.sync_all().map_err(Error::io("write", temporary))?;
    drop(file);
    fs::rename(temporary, path).map_err(Error::io("rename to", path))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", folder))
}

/// `path` with `suffix` appended to its file name.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing() {
        let dir = std::env::temp_dir().join(format!("loaders-replace-{}", std::process::id()));
        fs::create_dir_all(dir.join("taken")).unwrap();
        replace(&dir.join("a"), b"one").unwrap();
        replace(&dir.join("a"), b"two").unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"two");
        // A folder cannot be replaced by a file.
        fs::create_dir_all(dir.join("taken/inside")).unwrap();
        assert!(replace(&dir.join("taken"), b"three").is_err());
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "taken"]);
        fs::remove_dir_all(dir).unwrap();
    }
}

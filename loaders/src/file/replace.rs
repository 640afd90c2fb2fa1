//! Writes a small file atomically.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::file::safe_create::NewFile;
use crate::stall::during;

/// Writes `bytes` to a temporary file in the same directory, syncs it, renames it to `path` and syncs the directory. If
/// it fails, nothing is left behind, and an old file does not change.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    during("writing", path, || {
        let mut new = NewFile::beside(path).map_err(Error::io("create", path))?;
        new.file().and_then(|file| file.write_all(bytes)).map_err(Error::io("write", path))?;
        new.publish().map(drop).map_err(Error::io("rename the new file to", path))
    })
}

/// Appends `suffix` to the file name.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_failed_replace_leaves_no_temporary_file() {
        let dir = std::env::temp_dir().join(format!("loaders-replace-{}", std::process::id()));
        fs::create_dir_all(dir.join("taken")).unwrap();
        replace(&dir.join("a"), b"one").unwrap();
        replace(&dir.join("a"), b"two").unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"two");
        // A file cannot replace a directory.
        fs::create_dir_all(dir.join("taken/inside")).unwrap();
        assert!(replace(&dir.join("taken"), b"three").is_err());
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "taken"]);
        fs::remove_dir_all(dir).unwrap();
    }
}

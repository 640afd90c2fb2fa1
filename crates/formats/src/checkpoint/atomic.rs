//! Atomic file replacement: write a temporary file next to the target, fsync, rename, fsync the folder.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use loaders::safe_create::NewFile;

use super::error::Error;

/// Creates `folder` if it does not exist, and checks that files can be written there.
///
/// # Errors
///
/// Returns [`Error::Folder`] with the reason. The test file is always removed.
pub fn check_writable(folder: &Path) -> Result<(), Error> {
    let write = || {
        fs::create_dir_all(folder)?;
        let mut probe = NewFile::beside(&folder.join("writable"))?;
        // This is more than some file systems store inside the inode. An empty file would fit even on a full disk.
        probe.file()?.write_all(&[0; 8192])?;
        probe.file()?.sync_all()
    };
    write().map_err(|source| Error::Folder { path: folder.to_path_buf(), source })
}

/// Returns the free space in bytes for this user on the file system of `folder`, or `None` if the system does not
/// report it.
pub fn free_space(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Replaces `path` by a new file that `write` fills. If `write` uses a library that needs a path, it can use
/// [`NewFile::name`].
///
/// `bytes` is the approximate size, for the message if the disk is full. If anything fails, the new file is removed and
/// `path` is not changed. Only one process at a time may write to `path`.
pub(super) fn replace(
    path: &Path,
    bytes: u64,
    write: impl FnOnce(&mut NewFile) -> Result<(), Error>,
) -> Result<(), Error> {
    let refuse = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { path: path.to_path_buf(), bytes },
        io::ErrorKind::FileTooLarge => Error::FileLimit { path: path.to_path_buf(), bytes },
        _ => Error::Io { action: "write", path: path.to_path_buf(), source },
    };
    let mut new = NewFile::beside(path).map_err(refuse)?;
    write(&mut new).map_err(|error| match error {
        Error::Io { source, .. } => refuse(source),
        Error::Hdf5 { text, .. } if contains_errno(&text, &[libc::EFBIG]) => {
            Error::FileLimit { path: path.to_path_buf(), bytes }
        }
        Error::Hdf5 { text, .. } if contains_errno(&text, &[libc::ENOSPC, libc::EDQUOT]) => {
            Error::NoSpace { path: path.to_path_buf(), bytes }
        }
        // HDF5's message has the temporary name, so use the user's path instead.
        Error::Hdf5 { action, text, .. } => Error::Hdf5 { action, path: path.to_path_buf(), text },
        other => other,
    })?;
    new.publish().map(drop).map_err(refuse)
}

/// Replaces a text file atomically.
///
/// # Errors
///
/// Returns the error of the operating system. The old file is then unchanged.
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    replace(path, text.len() as u64, |new| {
        let written = new.file().and_then(|file| file.write_all(text.as_bytes()));
        written.map_err(|source| Error::Io { action: "write", path: path.to_path_buf(), source })
    })
}

/// Returns true if an HDF5 error message contains any of these `errno` codes, such as ENOSPC.
fn contains_errno(text: &str, codes: &[i32]) -> bool {
    codes.iter().any(|code| text.contains(&format!("errno = {code},")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Temporary;

    #[test]
    fn a_failed_replace_keeps_the_old_file_and_no_temporary() {
        let Temporary(folder) = &Temporary::new("failure");
        check_writable(folder).unwrap();
        let path = folder.join("model.h5");
        write_text(&path, "old").unwrap();
        let failure = replace(&path, 3, |new| {
            new.file().unwrap().write_all(b"ne").unwrap();
            Err(Error::Io { action: "write", path: path.clone(), source: io::ErrorKind::StorageFull.into() })
        });
        assert!(matches!(failure, Err(Error::NoSpace { bytes: 3, .. })), "{failure:?}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }

    #[test]
    fn check_writable_refuses_a_file_instead_of_a_folder() {
        let Temporary(folder) = &Temporary::new("file");
        check_writable(folder).unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
        fs::write(folder.join("file"), "").unwrap();
        for path in [folder.join("file"), folder.join("file/below")] {
            let error = check_writable(&path).unwrap_err();
            assert!(matches!(&error, Error::Folder { path: named, .. } if *named == path), "{error}");
            assert!(error.to_string().contains("--out"), "{error}");
        }
        let missing = replace(&folder.join("missing/model.h5"), 1, |_| Ok(()));
        assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
    }

    #[test]
    fn hdf5s_error_for_a_full_disk_is_recognised() {
        let full = "file write failed: filename = 'x', errno = 28, error message = 'No space left on device'";
        assert!(contains_errno(full, &[libc::ENOSPC]));
        assert!(!contains_errno("unable to open file: errno = 2, error message = 'No such file'", &[libc::ENOSPC]));
    }
}

//! The lock on an output directory. The file OUT/.trireme-lock describes the process that uses the directory. Only rank
//! 0 takes the lock.
//!
//! At a normal end the process empties the file and leaves it there: an empty file shows that the run has ended.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use loaders::folder_of;
use loaders::lock_file::{LockError, LockFile};

use crate::error::Error;

/// The lock on an output directory. Dropping it releases the directory.
#[derive(Debug)]
pub struct OutLock(LockFile);

impl OutLock {
    /// Locks the directory `out`, which must exist. With `steal` set, also takes the directory from a run on another
    /// host whose state cannot be checked. Returns an error that describes the other run if the directory is in use.
    pub fn take(out: &Path, steal: bool) -> Result<Self, Error> {
        LockFile::take(&path_in(out), steal).map(Self).map_err(|error| match error {
            LockError::File { path, source } => Error::File { action: "lock", path, source },
            LockError::InUse { holder, unknown, .. } => {
                let more = if unknown {
                    ". That host cannot be checked from here: if you know that the run has ended, add --steal-lock"
                } else {
                    ""
                };
                Error::Usage(format!(
                    "{} is in use by {holder}; wait until that run ends, or choose another --out{more}",
                    out.display()
                ))
            }
        })
    }

    /// Works like [`OutLock::take`], but returns `None` if there is no lock file in `out`.
    pub fn take_if_there(out: &Path, steal: bool) -> Result<Option<Self>, Error> {
        let there = fs::symlink_metadata(path_in(out)).is_ok();
        there.then(|| Self::take(out, steal)).transpose()
    }

    /// Returns an error if another run has taken the directory, so that this run must not write there any more. Returns
    /// no error if the directory itself is gone (see [`OutLock::is_gone`]), because the next write then fails.
    pub fn check(&self) -> Result<(), Error> {
        if self.0.is_lost() { Err(Error::TakenOver(self.folder().to_path_buf())) } else { Ok(()) }
    }

    /// Returns true if the directory does not exist any more. Returns false if the file system reports another error.
    pub fn is_gone(&self) -> bool {
        fs::metadata(self.folder()).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Returns the path of the directory, also after it was renamed. Returns `None` if it was removed.
    pub fn current_folder(&self) -> Option<PathBuf> {
        self.0.current_path().map(|path| folder_of(&path).to_path_buf())
    }

    fn folder(&self) -> &Path {
        folder_of(self.0.path())
    }
}

fn path_in(out: &Path) -> PathBuf {
    out.join(".trireme-lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_stolen_is_taken_over() {
        let out = std::env::temp_dir().join(format!("trireme-lock-{}", std::process::id()));
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(&out).unwrap();
        assert!(OutLock::take_if_there(&out, false).unwrap().is_none() && fs::read_dir(&out).unwrap().count() == 0);
        let lock = OutLock::take(&out, false).unwrap();
        lock.check().unwrap();
        fs::write(out.join("new"), "another run").unwrap();
        fs::rename(out.join("new"), path_in(&out)).unwrap();
        let error = lock.check().unwrap_err();
        assert!(matches!(&error, Error::TakenOver(folder) if *folder == out), "{error:?}");
        support::mentions(error, &["--steal-lock"]);
        drop(lock);
        assert_eq!(fs::read(path_in(&out)).unwrap(), b"another run");
        assert!(OutLock::take_if_there(&out, false).unwrap().is_some());
        fs::remove_dir_all(&out).unwrap();
    }
}

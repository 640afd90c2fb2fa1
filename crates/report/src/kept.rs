//! A log file that is written in place. If somebody removes it during the run, it is created again.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::screen;
use loaders::safe_create;

/// Minimum time between two checks that the file still exists.
const LOOK: Duration = Duration::from_secs(1);

/// An open log. Each write is a single system call, so that lines are never split.
pub struct Kept {
    file: File,
    path: PathBuf,
    looked: Instant,
}

impl Kept {
    /// Opens the file for appending, or creates it.
    ///
    /// # Errors
    /// Fails if the operating system refuses this.
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self::on(safe_create::to_append(path)?, path))
    }

    /// Uses a file that is already open.
    pub fn on(file: File, path: &Path) -> Self {
        Self { file, path: path.into(), looked: Instant::now() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Checks that the path still refers to the open file. If the file was removed, creates a new file and copies all lines into it. If it
    /// was replaced, later lines go to the replacement. Does nothing if the folder was removed: other code then ends the run.
    pub fn look(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.keep();
        }
    }

    fn keep(&mut self) {
        let Ok(open) = self.file.metadata() else { return };
        let removed = match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (open.dev(), open.ino()) => return,
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(_) => return,
        };
        if !open.is_file() {
            return;
        }
        let Ok(file) = safe_create::to_append(&self.path) else { return };
        let mut old = std::mem::replace(&mut self.file, file);
        let copied = match removed {
            true => old.rewind().and_then(|()| io::copy(&mut old, &mut self.file)).map(drop),
            false => Ok(()),
        };
        let path = loaders::printable(&self.path.to_string_lossy()).into_owned();
        screen::say(&match (removed, copied) {
            (true, Ok(())) => format!("warning: {path} was removed; it is there again, with all lines so far"),
            (true, Err(error)) => format!("warning: {path} was removed, and lines before now are lost: {error}"),
            (false, _) => format!("warning: {path} was replaced by another file; later lines go there"),
        });
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.look();
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_was_removed_comes_back_whole() {
        let folder = std::env::temp_dir().join(format!("trireme-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        let mut log = Kept::append(&path).unwrap();
        log.write_all(b"one\n").unwrap();
        fs::remove_file(&path).unwrap();
        log.keep();
        log.write_all(b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
        fs::rename(&path, folder.join("old")).unwrap();
        fs::write(&path, "edited\n").unwrap();
        log.keep();
        log.write_all(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"edited\nthree\n");
        fs::remove_dir_all(&folder).unwrap();
        log.keep();
        log.write_all(b"four\n").unwrap();
    }
}

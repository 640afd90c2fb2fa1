//! A log that grows in place, and that comes back if somebody removes it while the run goes on.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::screen;
use loaders::safe_create;

/// Between two looks whether the file is still there.
const LOOK: Duration = Duration::from_secs(1);

/// An open log. Each write is one call to the system, so that whole lines arrive.
pub struct Kept {
    file: File,
    path: PathBuf,
    looked: Instant,
}

impl Kept {
    /// Opens the file to write at its end, or creates it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self::on(safe_create::to_append(path)?, path))
    }

    /// The same for an open file.
    pub fn on(file: File, path: &Path) -> Self {
        Self { file, path: path.into(), looked: Instant::now() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Looks whether the file still has its name. If it was removed, a new one gets all lines so far from the one that is open; if another
    /// file has its name, later lines go there. A folder that is gone is the business of others, who end the run.
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

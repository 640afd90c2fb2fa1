//! Where a series of trainings reads and writes, and whose temporary files are whose.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::preload::Preload;
use support::program::Folder;

/// See the module.
pub struct Place {
    /// The data set.
    pub data: String,
    /// OUT.
    pub out: String,
    /// In front of the files of both.
    pub preload: Preload,
    /// For MPI's temporary files, which processes that were killed leave behind.
    temporary: [PathBuf; 2],
}

impl Place {
    /// Of the series of this name.
    pub fn new(folder: &Folder, series: &str, data: String, out: String) -> Self {
        let own = folder.path().join(series);
        let shared = Path::new("/dev/shm");
        let shared = if shared.is_dir() { shared } else { folder.path() };
        let temporary = [own.join("tmp"), shared.join(format!("trireme-soak-{}-{series}", std::process::id()))];
        for path in &temporary {
            fs::create_dir_all(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        Self { preload: Preload::new(&own, &data, &out), data, out, temporary }
    }

    /// Has a program use the place. Open MPI takes the second folder, other MPIs do without.
    pub fn apply(&self, command: &mut Command) {
        self.preload.apply(command);
        command.env("TMPDIR", &self.temporary[0]).env("OMPI_MCA_btl_vader_backing_directory", &self.temporary[1]);
    }

    /// Removes the temporary files of processes that are gone.
    pub fn tidy(&self) {
        for path in &self.temporary {
            let _ = fs::remove_dir_all(path);
            fs::create_dir_all(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }

    /// The log.
    pub fn log(&self) -> PathBuf {
        Path::new(&self.out).join("metrics.jsonl")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.temporary[1]);
    }
}

//! The folders that a series of training runs uses, including its own folders for temporary files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::preload::Preload;
use support::program::Folder;

pub struct Place {
    pub data: String,
    pub out: String,
    /// Controls slow and failing access to the files of the data set and of the output folder.
    pub preload: Preload,
    /// Folders for MPI's temporary files, which killed processes leave behind.
    temporary: [PathBuf; 2],
}

impl Place {
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

    /// Sets the environment so that a program uses these folders. Open MPI uses the second temporary folder, other MPIs
    /// do not need it.
    pub fn apply(&self, command: &mut Command) {
        self.preload.apply(command);
        command.env("TMPDIR", &self.temporary[0]).env("OMPI_MCA_btl_vader_backing_directory", &self.temporary[1]);
    }

    pub fn tidy(&self) {
        for path in &self.temporary {
            let _ = fs::remove_dir_all(path);
            fs::create_dir_all(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }

    pub fn log(&self) -> PathBuf {
        Path::new(&self.out).join("metrics.jsonl")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.temporary[1]);
    }
}

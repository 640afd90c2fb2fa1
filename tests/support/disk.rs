//! A small disk of its own, to be filled, for tests that may mount one.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

/// A file system in memory, unmounted when dropped.
pub struct Disk(String);

impl Disk {
    /// Mounted at this new folder, with a size as mount has it, such as 40m; nothing where the test may not mount.
    pub fn mount(folder: String, size: &str) -> Option<Self> {
        fs::create_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
        let size = format!("size={size}");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "trireme-test", &folder]).output();
        done.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    /// A path on it.
    pub fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// Fills it up to so many bytes; [`Disk::clear`] makes room again.
    pub fn fill_but(&self, bytes: u64) {
        let file = self.top_up();
        file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
    }

    /// Takes all room that there is.
    pub fn top_up(&self) -> File {
        let mut file = File::options().create(true).append(true).open(self.at("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        file
    }

    /// Gives back the room that was taken.
    pub fn clear(&self) {
        fs::remove_file(self.at("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

//! A small file system that tests can fill up. It needs permission to mount.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

/// A tmpfs file system. It is unmounted when dropped.
pub struct Disk(String);

impl Disk {
    /// Creates `folder` and mounts the file system there. `size` has the format of mount's option, such as `40m`.
    /// Returns `None` if the test is not allowed to mount.
    pub fn mount(folder: String, size: &str) -> Option<Self> {
        fs::create_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
        let size = format!("size={size}");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "trireme-test", &folder]).output();
        done.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    /// Returns a path on the disk.
    pub fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// Fills the disk and leaves `bytes` bytes free. [`Disk::clear`] frees the space again.
    pub fn fill_but(&self, bytes: u64) {
        let file = self.top_up();
        file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
    }

    /// Fills all free space.
    pub fn top_up(&self) -> File {
        let mut file = File::options().create(true).append(true).open(self.at("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        file
    }

    /// Frees the space that the filler file takes.
    pub fn clear(&self) {
        fs::remove_file(self.at("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

//! Starts writing a file to disk, so that a later sync has little left to do.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Asks the kernel to write the file's dirty pages, and returns without waiting for the disk. This is only a hint: it
/// makes nothing durable, and errors appear in the sync that follows.
pub fn start(file: &File) {
    // SAFETY: the system call gets an open file and numbers, and does not access memory of this process. Offset 0 with
    // length 0 means the whole file.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Also tests pipes and devices, for which the system call fails.
    #[test]
    fn write_back_keeps_the_content_of_files_and_devices() {
        let path = std::env::temp_dir().join(format!("loaders-write-back-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        start(&file);
        file.write_all(&[7; 10_000]).unwrap();
        start(&file);
        file.sync_all().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 10_000]);
        std::fs::remove_file(path).unwrap();
        start(&File::open("/dev/null").unwrap());
    }
}

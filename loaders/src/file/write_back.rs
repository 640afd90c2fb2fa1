//! Starts the way of a file's bytes to the disk, so that a sync which comes later finds most of it done.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Asks the kernel to write what it has of the file in its page cache, and returns without waiting for the disk. Only a hint: it makes
/// nothing durable, and an error is that of the sync behind it.
pub fn start(file: &File) {
    // SAFETY: a call of the system with an open file and numbers; it touches no memory of this process. From 0 on, 0 bytes: the whole file.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Pipes and devices, where the call fails, as well as files.
    #[test]
    fn the_content_stays_whatever_the_file_is() {
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

//! What of a file the page cache holds, so that nothing is read ahead that is there already.

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::Path;

use rustix::io::{ReadWriteFlags, preadv2};

use crate::file::regular;

/// Bytes from one that is looked at to the next.
const STEP: usize = 256 << 10;

/// A file whose pages may be in memory.
pub(crate) struct PageCache {
    file: File,
}

impl PageCache {
    /// Of the regular file at `path`, if it can be opened.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        regular::open(path).ok().map(|file| Self { file })
    }

    /// Whether the page cache seems to hold these bytes of the file; no where the kernel does not tell (Linux before 4.14, and some file
    /// systems).
    ///
    /// One byte of each 256 KiB is read, in a way that fails rather than wait for the storage. (`mincore` says yes of files that belong to
    /// somebody else, and takes the lock under which the threads of a process map and populate memory.)
    pub(crate) fn holds(&self, bytes: Range<u64>) -> bool {
        let mut byte = [0];
        bytes.step_by(STEP).all(|at| {
            preadv2(&self.file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT)
                .is_ok_and(|read| read == 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::filesystem::FileSystem;

    #[test]
    fn a_file_in_memory_is_told_from_one_on_disk() {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("loaders-page-cache-{}", std::process::id()));
        let length = 20 * STEP as u64;
        std::fs::write(&path, vec![7; length as usize]).unwrap();
        let name = FileSystem::of(&dir).unwrap().name;
        let cache = PageCache::of(&path).unwrap();
        if ["ext4", "XFS"].contains(&name.as_str()) {
            assert!(cache.holds(0..length));
            assert!(!cache.holds(0..length + 1), "there is nothing beyond the end");
            cache.file.sync_all().unwrap();
            rustix::fs::fadvise(&cache.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            assert!(!cache.holds(0..length));
            std::fs::read(&path).unwrap();
            assert!(cache.holds(0..length));
        } else {
            eprintln!("SKIPPED: {} is on {name}, which may not tell", dir.display());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(PageCache::of(&path).is_none());
    }
}

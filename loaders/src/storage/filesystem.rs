//! Information from the operating system about files: type and free space of a file system, the limit on open files,
//! and whether the page cache holds a range of a file.

use std::fs::{self, File};
use std::io;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::{ReadWriteFlags, preadv2};
use rustix::process::{Resource, getrlimit};

use crate::file::regular;
use crate::memory;

/// File system types (`statfs(2)`) with files on other machines. A page fault in a mapping of such a file causes a
/// small read, and these reads happen sequentially.
const REMOTE: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "CephFS"),
    (0x6573_5546, "FUSE"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0xaad7_aaea, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x5346_414f, "AFS"),
    (0x0102_1997, "9P"),
];

/// File system types (`statfs(2)`) with files on this machine.
const LOCAL: &[(u32, &str)] = &[
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0x7371_7368, "SquashFS"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Name of the file system's type, for example "NFS" or "ext4". For an unknown type, it contains the type's number.
    pub name: String,
    /// True if the files are known to be on another machine.
    pub remote: bool,
    /// Bytes that this user can still write.
    pub free: u64,
    /// Size in bytes. It is 0 for file systems without storage, such as `/proc`.
    pub size: u64,
}

impl FileSystem {
    /// Returns the file system that contains `path`, which must exist.
    pub fn of(path: &Path) -> io::Result<Self> {
        let answer = rustix::fs::statfs(path)?;
        // The width and sign of this field differ between platforms. The magic numbers have 32 bits.
        let kind = answer.f_type as u32;
        let bytes = |blocks: u64| blocks.saturating_mul(answer.f_bsize as u64);
        Ok(Self::from_type(kind, bytes(answer.f_bavail), bytes(answer.f_blocks)))
    }

    fn from_type(kind: u32, free: u64, size: u64) -> Self {
        let find = |table: &[(u32, &'static str)]| table.iter().find(|(k, _)| *k == kind).map(|(_, name)| *name);
        let (name, remote) = match (find(REMOTE), find(LOCAL)) {
            (Some(name), _) => (name.to_owned(), true),
            (None, Some(name)) => (name.to_owned(), false),
            (None, None) => (format!("type {kind:#x}"), false),
        };
        Self { name, remote, free, size }
    }
}

/// Asks the kernel to read a part of a file into the page cache if the cache has room for it. One long read then
/// replaces many short ones when samples are read in random order. This is only a hint.
pub fn read_ahead(file: &File, start: u64, length: u64) {
    if let Some(bytes) = NonZeroU64::new(length).filter(|_| length <= memory::available() / 2) {
        let _ = rustix::fs::fadvise(file, start, Some(bytes), rustix::fs::Advice::WillNeed);
    }
}

/// Returns true if a lock on a file in `folder` is visible to all hosts that mount its file system. The answer follows
/// from the type of the file system and its mount options.
pub fn locks_everywhere(folder: &Path) -> bool {
    let Ok(system) = FileSystem::of(folder) else { return false };
    let options = mount_options(folder).unwrap_or_default();
    carries_locks(&system, &options)
}

fn carries_locks(system: &FileSystem, options: &str) -> bool {
    let has = |option: &str| options.split(',').any(|given| given == option);
    match system.name.as_str() {
        // No other host uses a local disk.
        _ if !system.remote => true,
        "NFS" => !["nolock", "local_lock=all", "local_lock=posix"].into_iter().any(has),
        "Lustre" => has("flock"),
        "GPFS" | "CephFS" => true,
        // Locks are local to each host, or depend on settings that the mount options do not show.
        _ => false,
    }
}

/// Returns the options of the mount that contains `path`, followed by the options of the file system, separated by
/// commas.
fn mount_options(path: &Path) -> Option<String> {
    let device = fs::metadata(path).ok()?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    options_of(&fs::read_to_string("/proc/self/mountinfo").ok()?, &device)
}

/// Finds a device's options in the text of `/proc/self/mountinfo`: field 6 of the line, and field 3 after the separator
/// " - ". Field 3 of the line is the device.
fn options_of(mounts: &str, device: &str) -> Option<String> {
    let line = mounts.lines().rfind(|line| line.split(' ').nth(2) == Some(device))?;
    let (mount, system) = line.split_once(" - ")?;
    Some(format!("{},{}", mount.split(' ').nth(5)?, system.split(' ').nth(2)?))
}

/// Returns the maximum number of files that this process may have open at once, or 1024 without a limit.
pub(crate) fn open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(1024, |limit| limit as usize)
}

/// Distance in bytes between the positions that [`PageCache::holds`] tests.
const STEP: usize = 256 << 10;

/// An open file, used to ask whether its pages are in memory.
pub(crate) struct PageCache {
    file: File,
}

impl PageCache {
    /// Opens the regular file at `path`. Returns `None` if that fails.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        regular::open(path).ok().map(|file| Self { file })
    }

    /// Returns true if the page cache seems to hold these bytes of the file. Returns false if the kernel cannot tell
    /// (Linux before 4.14, and some file systems).
    ///
    /// This reads one byte in every 256 KiB with a flag that makes the read fail instead of waiting for storage.
    /// `mincore` is not used. It always answers yes for other users' files. It also takes the lock that the threads of
    /// a process need to map and populate memory.
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

    #[test]
    fn file_system_types_are_recognised_by_magic_number() {
        let of = |kind| {
            let found = FileSystem::from_type(kind, 7, 9);
            (found.name, found.remote)
        };
        for (kind, name) in [(0x6969, "NFS"), (0x0bd0_0bd0, "Lustre"), (0x4750_4653, "GPFS"), (0x6573_5546, "FUSE")] {
            assert_eq!(of(kind), (name.to_owned(), true));
        }
        assert_eq!(of(0xef53), ("ext4".to_owned(), false));
        assert_eq!(of(0x1234), ("type 0x1234".to_owned(), false));
    }

    /// `stat -f` and `df` give the same answers.
    #[test]
    fn file_system_of_local_paths_is_found() {
        let found = FileSystem::of(Path::new("/proc")).unwrap();
        assert_eq!(found.name, "type 0x9fa0");
        let temporary = FileSystem::of(&std::env::temp_dir()).unwrap();
        assert!(temporary.free > 0, "{temporary:?}");
        assert!(FileSystem::of(Path::new("/no/such/folder")).is_err());
        assert!(open_files() >= 64);
    }

    #[test]
    fn lock_support_is_read_from_mount_options() {
        let reach = |kind, options| carries_locks(&FileSystem::from_type(kind, 0, 0), options);
        let (ext4, nfs, lustre, beegfs) = (0xef53, 0x6969, 0x0bd0_0bd0, 0x1983_0326);
        assert!(reach(ext4, "") && reach(nfs, "rw,relatime,rw,vers=4.2,local_lock=none"));
        assert!(!reach(nfs, "rw,nolock") && !reach(nfs, "rw,local_lock=all"));
        assert!(reach(lustre, "rw,rw,flock,lazystatfs") && !reach(lustre, "rw,localflock") && !reach(beegfs, "rw"));
        let mounts = "36 35 0:52 / /home rw,noatime shared:1 - nfs4 server:/home rw,vers=4.2,local_lock=none\n\
                      37 35 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro\n";
        assert_eq!(options_of(mounts, "0:52").unwrap(), "rw,noatime,rw,vers=4.2,local_lock=none");
        assert_eq!(options_of(mounts, "8:2"), None);
        let temporary = std::env::temp_dir();
        match FileSystem::of(&temporary).unwrap().remote {
            false => assert!(locks_everywhere(&temporary)),
            true => crate::skip::skip(&format!("{} may be visible to other hosts", temporary.display())),
        }
    }

    #[test]
    fn a_file_in_memory_is_told_from_one_on_disk() {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("loaders-page-cache-{}", std::process::id()));
        let length = 20 * STEP as u64;
        std::fs::write(&path, vec![7; length as usize]).unwrap();
        let name = FileSystem::of(&dir).unwrap().name;
        let cache = PageCache::open(&path).unwrap();
        if ["ext4", "XFS"].contains(&name.as_str()) {
            assert!(cache.holds(0..length));
            assert!(!cache.holds(0..length + 1), "there is nothing beyond the end");
            cache.file.sync_all().unwrap();
            rustix::fs::fadvise(&cache.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            assert!(!cache.holds(0..length));
            std::fs::read(&path).unwrap();
            assert!(cache.holds(0..length));
        } else {
            crate::skip::skip(&format!("{} is on {name}, which may not tell what is in memory", dir.display()));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(PageCache::open(&path).is_none());
    }
}

//! The file system of a path: its type, whether it is remote, and its free space.

use std::io;
use std::path::Path;

/// Types of statfs(2) whose files are on other machines: page faults of a mapping fetch them in small reads, one after another.
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

/// Types of statfs(2) whose files are on this machine.
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

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// "NFS", "ext4", or the type's number.
    pub name: String,
    /// Whether it is known to be on another machine.
    pub remote: bool,
    /// Bytes that this user may still write.
    pub free: u64,
    /// Its size in bytes; 0 if nothing is stored, as in /proc.
    pub size: u64,
}

impl FileSystem {
    /// The file system of `path`, which must exist.
    pub fn of(path: &Path) -> io::Result<Self> {
        let answer = rustix::fs::statfs(path)?;
        // the field's width and sign differ between platforms; the magic numbers have 32 bits
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_their_numbers() {
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

    /// The answers of `stat -f` and `df`.
    #[test]
    fn this_machine_answers() {
        let found = FileSystem::of(Path::new("/proc")).unwrap();
        assert_eq!(found.name, "type 0x9fa0");
        let temporary = FileSystem::of(&std::env::temp_dir()).unwrap();
        assert!(temporary.free > 0, "{temporary:?}");
        assert!(FileSystem::of(Path::new("/no/such/folder")).is_err());
    }
}

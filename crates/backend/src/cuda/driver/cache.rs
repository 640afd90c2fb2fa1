//! Cache files that shorten the next start: compiled kernels and the fastest convolutions. They are stored in TRIREME_CACHE. Without that
//! variable, they are stored in `trireme/` below XDG_CACHE_HOME or ~/.cache.
//!
//! Every file is optional: it is created again if it cannot be read or written. The cache contains machine code. So a folder or file is
//! ignored if it belongs to another user or if others may write to it.

use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::fnv::hash;
use loaders::safe_create::NewFile;

/// Returns the cache folder, or `None` if no variable sets one.
pub fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let beside =
        || Some(variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?.join("trireme"));
    variable("TRIREME_CACHE").or_else(beside)
}

/// Returns the content of a file if the file is complete. The last eight bytes must be the hash of all bytes before
/// them.
pub fn read(file: &Path) -> Option<Vec<u8>> {
    is_own(&fs::metadata(file.parent()?).ok()?).then_some(())?;
    // does not follow links, and does not block on a FIFO
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut opened = OpenOptions::new().read(true).custom_flags(flags).open(file).ok()?;
    let found = opened.metadata().ok()?;
    (found.is_file() && is_own(&found)).then_some(())?;
    let mut bytes = Vec::new();
    opened.read_to_end(&mut bytes).ok()?;
    let (own, check) = bytes.split_last_chunk::<8>()?;
    (hash(own) == u64::from_le_bytes(*check)).then_some(())?;
    bytes.truncate(bytes.len() - 8);
    Some(bytes)
}

/// Returns true if this user owns a file or folder and nobody else may write to it.
fn is_own(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
}

/// Replaces a file atomically, so that other processes see either the whole new file or the old state.
pub fn write(file: &Path, bytes: &[u8]) {
    let Some(folder) = file.parent() else { return };
    let whole = [bytes, &hash(bytes).to_le_bytes()].concat();
    let put = || {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if !is_own(&fs::metadata(folder)?) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        let mut new = NewFile::private(file)?;
        new.file()?.write_all(&whole)?;
        new.publish_unsynced()
    };
    // the cache is optional: an entry that was not stored is computed again
    let _ = put();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_files_that_others_can_write_are_ignored() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = std::env::temp_dir().join(format!("trireme-cache-others-{}", std::process::id()));
        let file = folder.join("a.bin");
        let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        write(&file, b"kernels");
        assert!(read(&file).is_some());
        symlink(&file, folder.join("link")).unwrap();
        assert_eq!(read(&folder.join("link")), None);
        assert!(std::process::Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap().success());
        assert_eq!(read(&folder.join("fifo")), None);
        for mode in [0o620, 0o602] {
            allow(&file, mode);
            assert_eq!(read(&file), None, "{mode:o}");
        }
        allow(&file, 0o644);
        for mode in [0o770, 0o707] {
            allow(&folder, mode);
            assert_eq!(read(&file), None, "{mode:o}");
            write(&folder.join("b.bin"), b"kernels");
            assert!(!folder.join("b.bin").exists());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn truncated_cache_files_are_ignored() {
        let folder = std::env::temp_dir().join(format!("trireme-cache-{}", std::process::id()));
        let file = folder.join("deep").join("a.bin");
        assert_eq!(read(&file), None);
        write(&file, b"kernels");
        assert_eq!(read(&file).as_deref(), Some(&b"kernels"[..]));
        let whole = std::fs::read(&file).unwrap();
        for cut in [0, 3, whole.len() - 1] {
            std::fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(read(&file), None, "cut to {cut} bytes");
        }
        write(&file, b"again");
        assert_eq!(read(&file).as_deref(), Some(&b"again"[..]));
        let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "temporary files are left behind");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

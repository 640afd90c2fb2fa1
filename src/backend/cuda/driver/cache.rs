//! Files that spare work at the next start: compiled kernels, the fastest convolutions. In TRIREME_CACHE, else in trireme/ below
//! XDG_CACHE_HOME or ~/.cache. None of them is needed: what cannot be read or written is made again.

use std::io::Write;
use std::path::{Path, PathBuf};

use loaders::safe_create::NewFile;

/// Where the files lie; nowhere if no variable says so.
pub fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let beside =
        || Some(variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?.join("trireme"));
    variable("TRIREME_CACHE").or_else(beside)
}

/// 64 bits of FNV-1a.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// What a file holds, if it is whole: its last eight bytes are the hash of all before.
pub fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(file).ok()?;
    let (own, check) = bytes.split_last_chunk::<8>()?;
    (hash(own) == u64::from_le_bytes(*check)).then_some(())?;
    bytes.truncate(bytes.len() - 8);
    Some(bytes)
}

/// Puts a file in its place in one go, so that other processes see all of it or nothing.
pub fn write(file: &Path, bytes: &[u8]) {
    let Some(folder) = file.parent() else { return };
    let whole = [bytes, &hash(bytes).to_le_bytes()].concat();
    let put = || {
        std::fs::create_dir_all(folder)?;
        let mut new = NewFile::beside(file)?;
        new.file()?.write_all(&whole)?;
        new.publish_unsynced()
    };
    // what cannot be kept is made again
    let _ = put();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_whole_or_not_at_all() {
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

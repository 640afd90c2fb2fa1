//! The lock of a temporary folder, and temporary folders of processes that were killed: their locks are free.
//!
//! The lock file lies in the folder and is removed before that is published. It gets its name when it is locked, so a file of that name
//! that is not locked belongs to no living process of the host that it names: some file systems have locks that other hosts do not see.
//! Where a file system has no locks, no folder has such a file, and all stay.

use loaders::folder_of;
use loaders::safe_create::{self, NewFile};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file that is locked.
const LOCK: &str = ".being-written";
/// What stands between the name of the output and a number.
const MARK: &[u8] = b".tmp-";

/// Locks the temporary folder `dir` for as long as the file is open; none where that is not possible.
pub(super) fn claim(dir: &Path) -> Option<File> {
    let mut file = NewFile::beside(&dir.join(LOCK)).ok()?;
    file.file().ok()?.try_lock().ok()?;
    file.file().ok()?.write_all(host().as_bytes()).ok()?;
    file.publish_unsynced().ok()
}

/// This host's name.
fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// Removes the lock file of a folder that is going to be published; the lock must be held until it is.
pub(super) fn unname(dir: &Path) {
    // there is none where it could not be made
    let _ = fs::remove_file(dir.join(LOCK));
}

/// Removes the temporary folders of `out` that killed processes have left; what cannot be removed stays.
pub(super) fn sweep(out: &Path) {
    let Some(name) = out.file_name() else { return };
    for entry in fs::read_dir(folder_of(out)).into_iter().flatten().flatten() {
        // a link to a folder is none
        if is_temporary(&entry.file_name(), name) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_left(&entry.path());
        }
    }
}

/// Whether a name is that of a temporary folder of the output `out`: its name, the mark, a number and perhaps another one.
fn is_temporary(name: &OsStr, out: &OsStr) -> bool {
    let number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let rest = name.as_bytes().strip_prefix(out.as_bytes()).and_then(|rest| rest.strip_prefix(MARK));
    rest.is_some_and(|rest| rest.splitn(2, |&byte| byte == b'-').all(number))
}

/// Removes a folder with a lock file of this host that nobody has locked: its files, if all of it are files, and the lock file last.
fn remove_left(dir: &Path) {
    let path = dir.join(LOCK);
    let Ok(Some(lock)) = safe_create::open_own(&path) else { return };
    // a process that has just published its folder has removed the name
    if lock.try_lock().is_err() || lock.metadata().map_or(0, |meta| meta.nlink()) != 1 {
        return;
    }
    if fs::read_to_string(&path).ok().as_ref() != Some(&host()) {
        return;
    }
    let Ok(entries) = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) else { return };
    let others = entries.iter().filter(|entry| entry.file_name() != LOCK);
    if others.clone().any(|entry| entry.file_type().map_or(true, |kind| !kind.is_file())) {
        return;
    }
    if others.map(|entry| fs::remove_file(entry.path())).all(|removed| removed.is_ok()) {
        let _ = fs::remove_file(&path).and_then(|()| fs::remove_dir(dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_killed_processes_are_removed() {
        let root = std::env::temp_dir().join(format!("data-tools-claim-{}", std::process::id()));
        let folder = |name: &str| {
            let dir = root.join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("train-00000-of-00001.tfrecord.part"), "half").unwrap();
            dir
        };
        // as a killed process leaves them: locked once, and not any more
        for name in ["out.tmp-12", "out.tmp-12-3"] {
            drop(claim(&folder(name)).unwrap());
        }
        let held = claim(&folder("out.tmp-13")).unwrap();
        // without a lock file, of another output, of another pattern, with a folder in it, and a link
        folder("out.tmp-14");
        for name in ["other.tmp-12", "out.tmp-12x", "out.tmp-", "out.tmp-1-2-3", "out.tmp-15"] {
            drop(claim(&folder(name)).unwrap());
        }
        folder("out.tmp-15/inner");
        // of another host
        drop(claim(&folder("out.tmp-17")).unwrap());
        fs::write(root.join("out.tmp-17").join(LOCK), "elsewhere\n").unwrap();
        std::os::unix::fs::symlink(root.join("other.tmp-12"), root.join("out.tmp-16")).unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let mut expected = names();
        sweep(&root.join("out"));
        expected.retain(|name| name != "out.tmp-12" && name != "out.tmp-12-3");
        assert_eq!(names(), expected);
        drop(held);
        sweep(&root.join("out"));
        expected.retain(|name| name != "out.tmp-13");
        assert_eq!(names(), expected);
        for name in ["other.tmp-12", "out.tmp-15", "out.tmp-17"] {
            assert!(root.join(name).join("train-00000-of-00001.tfrecord.part").is_file(), "{name}");
        }
        fs::remove_dir_all(&root).unwrap();
    }
}

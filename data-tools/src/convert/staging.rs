//! The temporary folder for an output, next to its final path. It is renamed when the output is complete and removed
//! after an error, unless its finished shards are kept. Folders left by killed processes are removed when a command
//! writes to the same output again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use loaders::folder_of;
use loaders::lock_file::{LockError, LockFile};
use loaders::safe_create::{self, NewFile};
use loaders::stall::during;
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use crate::error::Error;
use crate::{dir, text};

/// A temporary folder `OUT.tmp-<pid>`, or `OUT.partial` if a later attempt may continue there. [`Staging::publish`]
/// renames it to OUT. Dropping it removes the folder. If [`Staging::keep`] was set, it only removes an empty folder that
/// this process created.
#[derive(Debug)]
pub(crate) struct Staging {
    out: PathBuf,
    temp: PathBuf,
    /// Parent folders of OUT that were created for it, outermost first.
    parents: Vec<PathBuf>,
    /// A locked file that shows other processes that the folder is in use.
    lock: Option<File>,
    /// The lock on `OUT.partial`. Unlike `lock`, it also works for hosts that do not see each other's locks.
    claim: Option<LockFile>,
    /// True if this process created the temporary folder.
    created: bool,
    published: bool,
    keep: bool,
}

impl Staging {
    /// Returns an error if the output exists and is not an empty folder.
    pub(crate) fn check(out: &Path) -> Result<(), Error> {
        resolve(out).map(drop)
    }

    /// Returns an error if the output is inside the source folder: the next conversion would fail because of it or
    /// report it as left out. If the source is a file, the output may be anywhere.
    pub(crate) fn check_outside(out: &Path, src: &Path) -> Result<(), Error> {
        // OUT itself may not exist yet, so check its first existing ancestor.
        let there = out.ancestors().find_map(|part| match part.as_os_str().is_empty() {
            true => Path::new(".").canonicalize().ok(),
            false => part.canonicalize().ok(),
        });
        match (there, src.canonicalize()) {
            (Some(there), Ok(folder)) if folder.is_dir() && there.starts_with(&folder) => {
                let (out, src) = (out.display(), src.display());
                Err(Error::Usage(format!(
                    "{out}: the output would be inside the source folder {src}; choose an OUT outside of it"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Creates `OUT.partial`, or reuses the folder of an earlier attempt. Returns an error that names the other process
    /// if one is converting there.
    pub(crate) fn resumable(out: &Path) -> Result<Self, Error> {
        during("creating", out, || Self::create_partial(out))
    }

    fn create_partial(out: &Path) -> Result<Self, Error> {
        let mut staging = Self::begin(out)?;
        staging.claim = Some(LockFile::beside(&staging.out).map_err(|error| match error {
            LockError::File { path, source } => Error::write(&path, None::<u64>, source),
            LockError::InUse { .. } => Error::Usage(error.message(&staging.out, "OUT")),
        })?);
        let mut name = staging.out.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let temp = staging.out.with_file_name(name);
        let created = fs::create_dir(&temp);
        staging.created = created.is_ok();
        match created {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("create the folder", &temp, e)),
            _ => {
                // Do not follow a link: its target does not belong to this conversion.
                let meta = fs::symlink_metadata(&temp).map_err(|e| Error::io("open", &temp, e))?;
                if !meta.is_dir() {
                    let kind = if meta.is_symlink() { "link" } else { "file" };
                    let problem = format!("the conversion needs a folder of this name, but it is a {kind}");
                    return Err(out_taken(&temp, &problem));
                }
                // Until the journal is locked, another thread may convert there, even if this one created the folder.
                (staging.temp, staging.keep) = (temp, true);
                Ok(staging)
            }
        }
    }

    /// Takes a handle of a locked file in the folder. It is closed after the folder was removed or published, so that no
    /// other conversion starts in a folder that is about to be removed.
    pub(crate) fn hold(&mut self, lock: File) {
        self.lock = Some(lock);
    }

    /// Sets whether the temporary folder is kept with its files if it is not published. Requires a lock.
    pub(crate) fn keep(&mut self, keep: bool) {
        self.keep = keep;
    }

    /// Returns the paths in the temporary folder in the order in which they are removed. The locked file is the last.
    /// Without it, another conversion could start in the folder while the other files are being removed.
    fn removal_order(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.temp).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort_by_cached_key(|path| self.lock.as_ref().is_some_and(|lock| safe_create::is_at(lock, path)));
        paths
    }

    /// Creates the temporary folder. Returns an error if OUT is a file or a folder that is not empty, or if its parent
    /// is not writable.
    pub(crate) fn new(out: &Path) -> Result<Self, Error> {
        during("creating", out, || {
            let mut staging = Self::begin(out)?;
            staging.make_temp()?;
            staging.lock = lock_folder(&staging.temp);
            Ok(staging)
        })
    }

    /// Checks OUT, removes leftovers of killed processes and creates the parent folders.
    fn begin(out: &Path) -> Result<Self, Error> {
        let out = resolve(out)?;
        remove_abandoned(&out);
        let (temp, parents) = (PathBuf::new(), Vec::new());
        let (lock, claim) = (None, None);
        let mut staging = Staging { out, temp, parents, lock, claim, created: false, published: false, keep: false };
        staging.make_parents()?;
        Ok(staging)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.temp
    }

    /// Syncs the folder to disk and renames it to OUT. Returns the path of the new folder: the absolute path if OUT
    /// existed as an empty folder, otherwise OUT as given. A relative path might no longer lead to the new folder if
    /// the replaced empty folder is the current folder. Returns an error if another process has created something at
    /// OUT meanwhile, or if the file system fails.
    pub(crate) fn publish(self) -> Result<PathBuf, Error> {
        let out = self.out.clone();
        during("writing", &out, || self.rename())
    }

    fn rename(mut self) -> Result<PathBuf, Error> {
        self.claim.as_ref().map_or(Ok(()), LockFile::check).map_err(|e| Error::io("write to", &self.out, e))?;
        // The lock is held until the folder is renamed.
        if self.lock.is_some() {
            let _ = fs::remove_file(self.temp.join(LOCK));
        }
        dir::sync(&self.temp)?;
        fs::rename(&self.temp, &self.out).map_err(|e| match e.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                out_taken(&self.out, "another process created it while the data set was being written")
            }
            _ => Error::io("move the finished folder to this path", &self.out, e),
        })?;
        self.published = true;
        if let Some(parent) = self.out.parent() {
            dir::sync(parent)?;
        }
        Ok(std::mem::take(&mut self.out))
    }

    fn make_parents(&mut self) -> Result<(), Error> {
        let missing: Vec<PathBuf> = self
            .out
            .ancestors()
            .skip(1)
            .take_while(|p| !p.as_os_str().is_empty() && !p.exists())
            .map(Path::to_path_buf)
            .collect();
        for parent in missing.into_iter().rev() {
            match fs::create_dir(&parent) {
                Ok(()) => self.parents.push(parent),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io("create the folder", &parent, e)),
            }
        }
        Ok(())
    }

    /// Creates the temporary folder. Appends another number to its name if a killed process with the same id has left a
    /// folder.
    fn make_temp(&mut self) -> Result<(), Error> {
        let name = self.out.file_name().unwrap_or_default().to_os_string();
        for attempt in 0u32.. {
            let mut name = name.clone();
            name.push(format!(".tmp-{}", std::process::id()));
            if attempt > 0 {
                name.push(format!("-{attempt}"));
            }
            let temp = self.out.with_file_name(name);
            match fs::create_dir(&temp) {
                Ok(()) => {
                    (self.temp, self.created) = (temp, true);
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => {}
                Err(e) => return Err(Error::io("create the folder", &temp, e)),
            }
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        // If the lock is lost, another process converts in this folder.
        let keep = self.keep || self.claim.as_ref().is_some_and(LockFile::is_lost);
        // Ignore errors while cleaning up: the first error is more useful. `remove_dir` fails if the folder is not empty.
        let _ = match (keep, self.created) {
            _ if self.temp.as_os_str().is_empty() => Ok(()),
            (false, _) => {
                for path in self.removal_order() {
                    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
                }
                // On NFS, the locked file stays in the folder under another name until it is closed.
                drop(self.lock.take());
                fs::remove_dir(&self.temp)
            }
            (true, true) => fs::remove_dir(&self.temp),
            (true, false) => Ok(()),
        };
        // The parents contain this lock file.
        drop(self.claim.take());
        for parent in self.parents.iter().rev() {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Resolves links in OUT, so that a link to an empty folder is accepted. Returns an error if OUT exists and is not an
/// empty folder, or if it is a mount point.
fn resolve(out: &Path) -> Result<PathBuf, Error> {
    let meta = match fs::metadata(out) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return match (out.file_name(), fs::symlink_metadata(out)) {
                (_, Ok(_)) => Err(out_taken(out, "it is a dangling link")),
                (None, _) => Err(Error::Usage(format!(
                    "`{}` does not end with the name of a folder; choose another OUT",
                    out.display()
                ))),
                (Some(_), Err(_)) => Ok(out.to_path_buf()),
            };
        }
        Err(e) => return Err(Error::io("use this path for the output", out, e)),
    };
    if !meta.is_dir() {
        return Err(out_taken(out, "it exists and is not a folder"));
    }
    let entries = fs::read_dir(out).map_err(|e| Error::io("list the output folder", out, e))?;
    match entries.count() {
        0 => {}
        1 => return Err(out_taken(out, "it exists and contains 1 entry")),
        n => return Err(out_taken(out, &format!("it exists and contains {} entries", text::count(n as u64)))),
    }
    let failed = |e| Error::io("use this path for the output", out, e);
    let folder = fs::canonicalize(out).map_err(failed)?;
    // The temporary folder is written next to OUT, and a folder cannot be moved to another file system.
    if fs::metadata(folder_of(&folder)).map_err(failed)?.dev() != meta.dev() || is_mount_point(&folder) {
        return Err(Error::Usage(format!(
            "{}: this folder is a mount point, so the finished folder cannot replace it; choose a new folder in it as OUT, \
             such as {}",
            out.display(),
            out.join("data").display()
        )));
    }
    Ok(folder)
}

/// Returns true if another folder is mounted here, also a folder on the same file system. Returns false if Linux is older
/// than 5.8, which does not say so.
fn is_mount_point(folder: &Path) -> bool {
    let state = rustix::fs::statx(rustix::fs::CWD, folder, AtFlags::empty(), StatxFlags::empty());
    state.is_ok_and(|state| state.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn out_taken(path: &Path, what: &str) -> Error {
    Error::OutTaken { path: path.to_path_buf(), what: what.to_string() }
}

// Locks temporary folders, and removes folders without a lock, which killed processes left.
//
// The lock file is in the temporary folder and is removed before the folder is published. It is locked before it gets
// its name. So a lock file that is not locked belongs to a process that has ended. This only holds on the host whose boot
// id is in the file, because some file systems do not share locks between hosts. Host names are not used, because
// different hosts can have the same name. On a file system without locks, no folder has a lock file and all folders are
// kept.

const LOCK: &str = ".being-written";
/// Separates the name of the output from the process id.
const MARK: &[u8] = b".tmp-";

/// Locks the temporary folder `dir` until the returned file is closed. Returns `None` if locking is not possible.
pub(super) fn lock_folder(dir: &Path) -> Option<File> {
    let mut file = NewFile::beside(&dir.join(LOCK)).ok()?;
    file.file().ok()?.try_lock().ok()?;
    file.file().ok()?.write_all(boot_id()?.as_bytes()).ok()?;
    file.publish_unsynced().ok()
}

/// Returns the random id of this boot of the host. Containers on a host have the same id and share locks.
fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

/// Removes temporary folders of `out` that killed processes left. Folders that cannot be removed stay.
pub(super) fn remove_abandoned(out: &Path) {
    let Some(name) = out.file_name() else { return };
    for entry in fs::read_dir(folder_of(out)).into_iter().flatten().flatten() {
        // This ignores links to folders, because `file_type` does not follow links.
        if is_temporary(&entry.file_name(), name) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_if_abandoned(&entry.path());
        }
    }
}

/// Returns true if `name` is a temporary folder of `out`: its name, the mark, a number and optionally `-` and another
/// number.
fn is_temporary(name: &OsStr, out: &OsStr) -> bool {
    let number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let rest = name.as_bytes().strip_prefix(out.as_bytes()).and_then(|rest| rest.strip_prefix(MARK));
    rest.is_some_and(|rest| rest.splitn(2, |&byte| byte == b'-').all(number))
}

/// Removes a folder if its lock file is from this boot of the host and not locked, and if it contains only files. The
/// lock file is removed last.
fn remove_if_abandoned(dir: &Path) {
    let path = dir.join(LOCK);
    let Ok(Some(lock)) = safe_create::open_own(&path) else { return };
    // A process that is just publishing its folder has already unlinked the file.
    if lock.try_lock().is_err() || lock.metadata().map_or(0, |meta| meta.nlink()) != 1 {
        return;
    }
    let holder = fs::read_to_string(&path).ok();
    if holder.is_none() || holder != boot_id() {
        return;
    }
    let Ok(entries) = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) else { return };
    let others = entries.iter().filter(|entry| entry.file_name() != LOCK);
    if others.clone().any(|entry| entry.file_type().map_or(true, |kind| !kind.is_file())) {
        return;
    }
    if others.map(|entry| fs::remove_file(entry.path())).all(|removed| removed.is_ok()) {
        let _ = fs::remove_file(&path);
        // On NFS, the file stays in the folder under another name until it is closed.
        drop(lock);
        let _ = fs::remove_dir(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::program::Folder;

    #[test]
    fn two_temporary_folders_never_mix() {
        let folder = Folder::new();
        let out = folder.path().join("out");
        let (first, second) = (Staging::new(&out).unwrap(), Staging::new(&out).unwrap());
        assert_ne!(first.dir(), second.dir());
        fs::write(first.dir().join("a"), "first").unwrap();
        fs::write(second.dir().join("b"), "second").unwrap();
        let left = second.dir().to_path_buf();
        first.publish().unwrap();
        let error = second.publish().unwrap_err();
        assert!(
            matches!(&error, Error::OutTaken { path, what } if *path == out && what.contains("another process")),
            "{error}"
        );
        assert!(out.join("a").is_file() && !out.join("b").exists() && !left.exists());
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_written_stays() {
        let folder = Folder::new();
        let (out, left) = (folder.path().join("out"), folder.path().join("out.tmp-1"));
        fs::create_dir(&left).unwrap();
        drop(lock_folder(&left).unwrap());
        let first = Staging::new(&out).unwrap();
        assert!(!left.exists());
        let second = Staging::resumable(&out).unwrap();
        assert!(first.dir().is_dir());
        first.publish().unwrap();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "no lock file");
        drop(second);
    }

    /// Two conversions may start at the same time. The one that is refused must not remove the folder of the other, even
    /// if the other has not written a file yet.
    #[test]
    fn a_refused_conversion_removes_only_an_empty_folder_of_its_own() {
        let folder = Folder::new();
        let out = folder.path().join("parent/out");
        let (first, second) = (Staging::resumable(&out).unwrap(), Staging::resumable(&out).unwrap());
        drop(second);
        assert!(first.dir().is_dir());
        let file = first.dir().join("finished.jsonl");
        fs::write(&file, "").unwrap();
        drop(first);
        assert!(file.is_file());
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
        drop(Staging::resumable(&out).unwrap());
        // The parent folder is the one of the first conversion, which had a file in it when it ended.
        assert_eq!(fs::read_dir(folder.path().join("parent")).unwrap().count(), 0);
    }

    /// As long as the locked file is in the folder, no other conversion starts there.
    #[test]
    fn the_locked_file_is_removed_last() {
        let folder = Folder::new();
        let mut staging = Staging::resumable(&folder.path().join("out")).unwrap();
        let dir = staging.dir().to_path_buf();
        let path = dir.join("finished.jsonl");
        let journal = File::create(&path).unwrap();
        journal.try_lock().unwrap();
        (0..20).for_each(|number| fs::write(dir.join(number.to_string()), "").unwrap());
        fs::create_dir(dir.join("class")).unwrap();
        fs::write(dir.join("class/0.png"), "").unwrap();
        staging.hold(journal);
        let order = staging.removal_order();
        assert_eq!((order.len(), order.last()), (22, Some(&path)));
        staging.keep(false);
        drop(staging);
        assert!(!dir.exists());
    }

    /// A user may remove a lock file although its conversion is still running. Another one then works in the same folder.
    #[test]
    fn a_conversion_whose_lock_was_replaced_keeps_the_folder() {
        let folder = Folder::new();
        let out = folder.path().join("out");
        let replaced = || {
            let mut staging = Staging::resumable(&out).unwrap();
            staging.keep(false);
            fs::write(staging.dir().join("shard"), "").unwrap();
            let new = folder.path().join("new");
            fs::write(&new, "").unwrap();
            fs::rename(new, staging.claim.as_ref().unwrap().path()).unwrap();
            staging
        };
        let staging = replaced();
        let shard = staging.dir().join("shard");
        drop(staging);
        assert!(shard.is_file());
        let error = replaced().publish().unwrap_err().to_string();
        assert!(error.contains("another command"), "{error}");
        assert!(shard.is_file() && !out.exists());
    }

    #[test]
    fn parents_vanish_only_with_a_failure_and_only_if_made_here() {
        let folder = Folder::new();
        let root = folder.path();
        drop(Staging::new(&root.join("x/y/out")).unwrap());
        assert!(!root.join("x").exists() && root.exists());
        Staging::new(&root.join("x/y/out")).unwrap().publish().unwrap();
        assert!(root.join("x/y/out").is_dir());
        drop(Staging::new(&root.join("x/y/other")).unwrap());
        assert!(root.join("x/y/out").is_dir());
    }

    #[test]
    fn only_folders_of_killed_processes_are_removed() {
        let temporary = Folder::new();
        let root = temporary.path();
        let folder = |name: &str| {
            let dir = root.join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("train-00000-of-00001.tfrecord.part"), "half").unwrap();
            dir
        };
        // Simulate a killed process: the file was locked and no longer is.
        for name in ["out.tmp-12", "out.tmp-12-3"] {
            drop(lock_folder(&folder(name)).unwrap());
        }
        let held = lock_folder(&folder("out.tmp-13")).unwrap();
        // Folders without a lock file, of another output, with other names or with a folder inside stay. So do links.
        folder("out.tmp-14");
        for name in ["other.tmp-12", "out.tmp-12x", "out.tmp-", "out.tmp-1-2-3", "out.tmp-15"] {
            drop(lock_folder(&folder(name)).unwrap());
        }
        folder("out.tmp-15/inner");
        // The lock file of this folder has the id of another host, so the folder stays.
        drop(lock_folder(&folder("out.tmp-17")).unwrap());
        fs::write(root.join("out.tmp-17").join(LOCK), "elsewhere\n").unwrap();
        std::os::unix::fs::symlink(root.join("other.tmp-12"), root.join("out.tmp-16")).unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let mut expected = names();
        remove_abandoned(&root.join("out"));
        expected.retain(|name| name != "out.tmp-12" && name != "out.tmp-12-3");
        assert_eq!(names(), expected);
        drop(held);
        remove_abandoned(&root.join("out"));
        expected.retain(|name| name != "out.tmp-13");
        assert_eq!(names(), expected);
        for name in ["other.tmp-12", "out.tmp-15", "out.tmp-17"] {
            assert!(root.join(name).join("train-00000-of-00001.tfrecord.part").is_file(), "{name}");
        }
    }
}

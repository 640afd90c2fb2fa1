//! The folder that an output grows in, beside its final place: renamed when it is complete; removed when anything fails,
//! unless its finished shards are kept. What a killed process has left is removed at the next start for the same output.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use loaders::folder_of;
use loaders::safe_create::{self, NewFile};
use loaders::stall::during;

use crate::error::Error;
use crate::{dir, text};

/// A temporary folder `OUT.tmp-<pid>`, or `OUT.partial` if a later attempt may continue there. It becomes OUT on
/// [`Staging::publish`] and is removed if dropped before, unless it is kept by [`Staging::keep`].
#[derive(Debug)]
pub(crate) struct Staging {
    out: PathBuf,
    temp: PathBuf,
    /// Parents of OUT that were made for it, outermost first.
    parents: Vec<PathBuf>,
    /// Locked while the folder is written, so that nobody takes it for one that was left.
    lock: Option<File>,
    published: bool,
    keep: bool,
}

impl Staging {
    /// Refuses an output that exists and is no empty folder.
    pub(crate) fn check(out: &Path) -> Result<(), Error> {
        resolve(out).map(drop)
    }

    /// Refuses an output in the folder that is read: the next conversion would stop at it, or leave it out with a note. A source that is a
    /// file may lie anywhere.
    pub(crate) fn check_outside(out: &Path, src: &Path) -> Result<(), Error> {
        // of OUT only a part may be there yet
        let there = out.ancestors().find_map(|part| match part.as_os_str().is_empty() {
            true => Path::new(".").canonicalize().ok(),
            false => part.canonicalize().ok(),
        });
        match (there, src.canonicalize()) {
            (Some(there), Ok(folder)) if folder.is_dir() && there.starts_with(&folder) => {
                let (out, src) = (out.display(), src.display());
                Err(Error::Usage(format!(
                    "{out}: it would lie in {src}, which is read; choose an OUT outside of that folder"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Makes `OUT.partial`, or takes the one that an earlier attempt has left.
    ///
    /// # Errors
    /// As [`Staging::new`].
    pub(crate) fn resumable(out: &Path) -> Result<Self, Error> {
        during("creating", out, || Self::named(out))
    }

    fn named(out: &Path) -> Result<Self, Error> {
        let mut staging = Self::begin(out)?;
        let mut name = staging.out.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let temp = staging.out.with_file_name(name);
        match fs::create_dir(&temp) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("create the folder", &temp, e)),
            made => {
                // What is in the place of a link's target is no conversion's.
                let is_folder = fs::symlink_metadata(&temp).is_ok_and(|meta| meta.is_dir());
                if !is_folder {
                    return Err(taken(&temp, "it is needed for the conversion and is no folder but a link or a file"));
                }
                // A folder that was there already is kept until its journal has been read.
                staging.keep = made.is_err();
                staging.temp = temp;
                Ok(staging)
            }
        }
    }

    /// Sets whether the temporary folder stays if it is not published.
    pub(crate) fn keep(&mut self, keep: bool) {
        self.keep = keep;
    }

    /// Makes the temporary folder.
    ///
    /// # Errors
    /// When OUT is a file or a folder that is not empty, or when its parent cannot be written.
    pub(crate) fn new(out: &Path) -> Result<Self, Error> {
        during("creating", out, || {
            let mut staging = Self::begin(out)?;
            staging.make_temp()?;
            staging.lock = claim(&staging.temp);
            Ok(staging)
        })
    }

    /// Clears the place of OUT, and makes its parents.
    fn begin(out: &Path) -> Result<Self, Error> {
        let out = resolve(out)?;
        sweep(&out);
        let (temp, parents) = (PathBuf::new(), Vec::new());
        let mut staging = Staging { out, temp, parents, lock: None, published: false, keep: false };
        staging.make_parents()?;
        Ok(staging)
    }

    /// The folder to write into.
    pub(crate) fn dir(&self) -> &Path {
        &self.temp
    }

    /// Makes the content durable and renames the folder to OUT; returns where OUT is. A relative path may not lead there any more: the
    /// current folder may be the empty one that was replaced.
    ///
    /// # Errors
    /// When another process has put something at OUT meanwhile, or the file system refuses.
    pub(crate) fn publish(self) -> Result<PathBuf, Error> {
        let out = self.out.clone();
        during("writing", &out, || self.rename())
    }

    fn rename(mut self) -> Result<PathBuf, Error> {
        if self.lock.is_some() {
            unname(&self.temp);
        }
        dir::sync(&self.temp)?;
        fs::rename(&self.temp, &self.out).map_err(|e| match e.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                taken(&self.out, "it appeared while the data set was being made")
            }
            _ => Error::io("put the finished folder at", &self.out, e),
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

    /// A killed process may have left a folder with the number of this process: then a further number is appended.
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
                    self.temp = temp;
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
        if self.published || self.keep {
            return;
        }
        // A clean-up that fails is not reported: the first error says more.
        if !self.temp.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.temp);
        }
        for parent in self.parents.iter().rev() {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// OUT with links followed, so that a link to an empty folder works; anything else that exists is refused.
fn resolve(out: &Path) -> Result<PathBuf, Error> {
    let meta = match fs::metadata(out) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return match (out.file_name(), fs::symlink_metadata(out)) {
                (_, Ok(_)) => Err(taken(out, "it is a link to nothing")),
                (None, _) => {
                    Err(Error::Usage(format!("`{}` is not a usable output folder; give it a name", out.display())))
                }
                (Some(_), Err(_)) => Ok(out.to_path_buf()),
            };
        }
        Err(e) => return Err(Error::io("use the output", out, e)),
    };
    if !meta.is_dir() {
        return Err(taken(out, "it exists and is not a folder"));
    }
    let entries = fs::read_dir(out).map_err(|e| Error::io("read the output", out, e))?;
    match entries.count() {
        0 => fs::canonicalize(out).map_err(|e| Error::io("use the output", out, e)),
        n => Err(taken(out, &format!("it exists and holds {}", text::plural(n as u64, "file")))),
    }
}

fn taken(path: &Path, what: &str) -> Error {
    Error::OutTaken { path: path.to_path_buf(), what: what.to_string() }
}

// The lock of a temporary folder, and temporary folders of processes that were killed: their locks are free.
//
// The lock file lies in the folder and is removed before that is published. It gets its name when it is locked, so a file of that name
// that is not locked belongs to no living process of the host that it names: some file systems have locks that other hosts do not see.
// Where a file system has no locks, no folder has such a file, and all stay.

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

    fn scratch(name: &str) -> PathBuf {
        let name = format!("data-tools-staging-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn two_at_once_never_mix() {
        let out = scratch("race");
        let (first, second) = (Staging::new(&out).unwrap(), Staging::new(&out).unwrap());
        assert_ne!(first.dir(), second.dir());
        fs::write(first.dir().join("a"), "first").unwrap();
        fs::write(second.dir().join("b"), "second").unwrap();
        let left = second.dir().to_path_buf();
        first.publish().unwrap();
        let message = second.publish().unwrap_err().to_string();
        assert!(message.contains("appeared while"), "{message}");
        assert!(out.join("a").is_file() && !out.join("b").exists() && !left.exists());
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_written_stays() {
        let out = scratch("left");
        let left = PathBuf::from(format!("{}.tmp-1", out.display()));
        fs::create_dir(&left).unwrap();
        drop(claim(&left).unwrap());
        let first = Staging::new(&out).unwrap();
        assert!(!left.exists());
        let second = Staging::resumable(&out).unwrap();
        assert!(first.dir().is_dir());
        first.publish().unwrap();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "no lock file");
        drop(second);
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn parents_vanish_only_with_a_failure_and_only_if_made_here() {
        let root = scratch("parents");
        fs::create_dir(&root).unwrap();
        drop(Staging::new(&root.join("x/y/out")).unwrap());
        assert!(!root.join("x").exists() && root.exists());
        Staging::new(&root.join("x/y/out")).unwrap().publish().unwrap();
        assert!(root.join("x/y/out").is_dir());
        drop(Staging::new(&root.join("x/y/other")).unwrap());
        assert!(root.join("x/y/out").is_dir());
        fs::remove_dir_all(&root).unwrap();
    }
}

#[cfg(test)]
mod claim_tests {
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

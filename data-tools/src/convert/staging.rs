//! The folder that an output grows in, beside its final place: renamed when it is complete; removed when anything fails,
//! unless its finished shards are kept. What a killed process has left is removed at the next start for the same output.

use super::claim;
use crate::dir;
use crate::error::Error;
use crate::text;
use loaders::stall::during;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

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
            staging.lock = claim::claim(&staging.temp);
            Ok(staging)
        })
    }

    /// Clears the place of OUT, and makes its parents.
    fn begin(out: &Path) -> Result<Self, Error> {
        let out = resolve(out)?;
        claim::sweep(&out);
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
            claim::unname(&self.temp);
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
        drop(claim::claim(&left).unwrap());
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

//! Lock files, which keep two commands from writing to the same output. A lock file describes the process that uses the
//! output.
//!
//! The lock is a POSIX byte-range lock (fcntl). NFS and Lustre share these locks between hosts, and the kernel releases
//! them when the process ends. The description in the file is used for messages, and on file systems that have no locks
//! or do not share them between hosts. Threads of one process do not exclude each other: if two of them lock a file, the
//! end of one lock also releases the other.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::filesystem;
use super::lock_holder::{Answer, Claim, Holder};
use crate::error::{folder_of, why};
use crate::file::safe_create::{self, NewFile, is_at};

/// Number of checks of a lock file without a description. Its holder may be about to write it, or to replace the
/// file.
const START_TRIES: u32 = 20;
/// Number of checks of a lock after its holder was killed. The kernel keeps the lock until the holder's last thread has
/// ended, which takes seconds on a busy machine.
const END_TRIES: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time after which a process on another host, which has taken the same lock at the same time, has described itself.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Maximum length of a holder's description in bytes.
const MOST: u64 = 4096;
/// Suffix of lock files next to outputs.
const ENDING: &str = ".trireme-lock";

/// A locked file. Dropping it releases the lock.
#[derive(Debug)]
pub struct LockFile {
    /// Must be the only open handle of this process to the file. POSIX releases the lock when the process closes any
    /// handle to the file.
    file: File,
    path: PathBuf,
    /// Describes this process, as in the file.
    holder: Holder,
    /// True if the file is removed at the end. Otherwise it is emptied.
    temporary: bool,
}

/// The reason why a file was not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("cannot lock {}: {}", path.display(), why(path, source))]
    File { path: PathBuf, source: io::Error },
    #[error("{} is locked by {holder}", path.display())]
    InUse {
        path: PathBuf,
        /// Describes the process that has the lock.
        holder: String,
        /// True if the process is on another host, so that its state cannot be checked from here.
        unknown: bool,
    },
}

impl LockError {
    /// Returns the message of a command that cannot write `output`, which [`LockFile::beside`] could not lock. `name` is
    /// the output's name on the command line.
    pub fn message(&self, output: &Path, name: &str) -> String {
        let Self::InUse { path, holder, unknown } = self else { return self.to_string() };
        let more = match unknown {
            true => format!(
                ". That host cannot be checked from here: if you know that the command has ended, remove {}",
                path.display()
            ),
            false => String::new(),
        };
        format!(
            "{} is in use by {holder}; wait until that command ends, or choose another {name}{more}",
            output.display()
        )
    }
}

/// Result of one attempt to lock the file.
enum LockState {
    /// This process has locked the file.
    Locked(File),
    /// The lock file may be replaced, because its holder has ended or the user requests it.
    Replace,
    /// Another process is just creating, replacing or describing the lock. Check again later.
    Again,
    /// The holder was killed and is about to end. Return this error if it does not end in time.
    Ending(LockError),
}

impl LockFile {
    /// Locks the file `path`, and creates it if it is missing. Its directory must exist. With `steal` set, also takes the
    /// lock from a process on another host whose state cannot be checked. Returns an error that describes the other
    /// process if it has the lock.
    pub fn take(path: &Path, steal: bool) -> Result<Self, LockError> {
        Self::take_as(path, steal, false)
    }

    fn take_as(path: &Path, steal: bool, temporary: bool) -> Result<Self, LockError> {
        let everywhere = filesystem::locks_everywhere(folder_of(path));
        let lock = Self::take_here(path, steal, everywhere, temporary)?;
        if !everywhere {
            // a process on another host may have done the same at the same time: the last description in the file decides
            std::thread::sleep(SETTLE_TIME);
            // a request for a lock makes NFS read the file again
            let _ = answer(&lock.file);
            if !(lock.is_own() && is_at(&lock.file, path)) {
                return Err(in_use_error(path, "another process that has just started"));
            }
        }
        Ok(lock)
    }

    /// Locks a file next to `output`, which a command is about to write. The file is removed when the lock is dropped. A
    /// process that is waiting for it then notices that it has locked a removed file, and creates a new one.
    pub fn beside(output: &Path) -> Result<Self, LockError> {
        let room = safe_create::LONGEST_NAME - 1 - ENDING.len();
        let mut name = OsString::from(".");
        name.push(safe_create::short_name(output.file_name().unwrap_or_default(), room));
        name.push(ENDING);
        Self::take_as(&output.with_file_name(name), false, true)
    }

    /// Locks the file against processes on this host and, if `everywhere` is set, on all other hosts.
    fn take_here(path: &Path, steal: bool, everywhere: bool, temporary: bool) -> Result<Self, LockError> {
        let refuse = refused(path);
        let me = Holder::me();
        let mut left = END_TRIES;
        let mut beginning = START_TRIES;
        loop {
            let held = match try_lock(path, &me, everywhere, steal)? {
                LockState::Locked(file) => {
                    let lock = Self { file, path: path.to_path_buf(), holder: me, temporary };
                    if let Err(error) = lock.write() {
                        let _ = if temporary { fs::remove_file(path) } else { Ok(()) };
                        return Err(refuse(error));
                    }
                    return Ok(lock);
                }
                LockState::Replace => return Self::replace(path, me, temporary).map_err(refuse),
                LockState::Ending(held) => held,
                LockState::Again => {
                    beginning -= 1;
                    in_use_error(path, "another process that is just starting")
                }
            };
            left -= 1;
            if left.min(beginning) == 0 {
                return Err(held);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Replaces the lock file by a new file that this process has locked.
    fn replace(path: &Path, holder: Holder, temporary: bool) -> io::Result<Self> {
        let mut new = NewFile::private(path)?;
        // the result is ignored, because the attempt before has already shown whether the file system supports locks
        let _ = answer(new.file()?);
        let text = serde_json::to_vec(&holder)?;
        new.file()?.write_all(&text)?;
        Ok(Self { file: new.publish()?, path: path.to_path_buf(), holder, temporary })
    }

    fn write(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(&serde_json::to_vec(&self.holder)?, 0)?;
        self.file.sync_all()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path that the file has now, also after its folder was renamed. Returns `None` if it was removed.
    pub fn current_path(&self) -> Option<PathBuf> {
        let path = fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).ok()?;
        is_at(&self.file, &path).then_some(path)
    }

    /// Returns true if another process has replaced the file. Returns false if the file was removed.
    pub fn is_lost(&self) -> bool {
        !is_at(&self.file, &self.path) && fs::symlink_metadata(&self.path).is_ok()
    }

    /// Returns an error if another process has replaced the file, so that this process must not write the output any
    /// more.
    pub fn check(&self) -> io::Result<()> {
        if !self.is_lost() {
            return Ok(());
        }
        let path = self.path.display();
        Err(io::Error::other(format!(
            "{path} was removed while this command was running, and another command has locked it, so this command ends"
        )))
    }

    /// Returns true if the file still describes this process, also after it was moved or replaced.
    fn is_own(&self) -> bool {
        described_holder(&self.file).is_ok_and(|found| found.as_ref() == Some(&self.holder))
    }
}

impl Drop for LockFile {
    /// Removes or empties the file, so that the next process finds no holder, also if the folder was renamed.
    fn drop(&mut self) {
        if !self.is_own() {
            return;
        }
        if self.temporary && is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        } else {
            let _ = self.file.set_len(0);
        }
    }
}

/// Tries to lock the file once. Creates the file if it is missing. `everywhere` is true if the file system applies locks
/// to all hosts.
fn try_lock(path: &Path, me: &Holder, everywhere: bool, steal: bool) -> Result<LockState, LockError> {
    let refuse = refused(path);
    let file = safe_create::to_update_private(path).map_err(refuse)?;
    let answer = answer(&file).map_err(|error| refuse(error.into()))?;
    let holder = described_holder(&file).map_err(refuse)?;
    if !is_at(&file, path) || (answer == Answer::Refused && holder.is_none()) {
        return Ok(LockState::Again);
    }
    let claim = holder.as_ref().map_or(Claim::Free, |holder| me.judge(holder, answer, everywhere));
    let ending = holder.as_ref().is_some_and(Holder::is_ending);
    let who = holder.map_or(String::new(), |holder| holder.describe(me.since));
    match claim {
        Claim::Free if answer == Answer::None => Ok(LockState::Replace),
        Claim::Free => Ok(LockState::Locked(file)),
        Claim::Left => Ok(LockState::Replace),
        Claim::Unknown if steal => Ok(LockState::Replace),
        Claim::Held if ending => Ok(LockState::Ending(in_use_error(path, &who))),
        Claim::Held => Err(in_use_error(path, &who)),
        Claim::Unknown => Err(LockError::InUse { path: path.to_path_buf(), holder: who, unknown: true }),
    }
}

fn refused(path: &Path) -> impl Fn(io::Error) -> LockError + Copy {
    move |source| {
        let about = fs::symlink_metadata(path).ok().filter(|_| source.kind() == io::ErrorKind::PermissionDenied);
        let source = match about.map(|about| denied_advice(about.uid(), geteuid().as_raw())) {
            Some(advice) => io::Error::new(source.kind(), format!("{source}; {advice}")),
            None => source,
        };
        LockError::File { path: path.to_path_buf(), source }
    }
}

/// Returns advice for a lock file of the user `owner` that the user `me` may not open.
fn denied_advice(owner: u32, me: u32) -> &'static str {
    match owner == me {
        true => "correct its permissions or its folder's",
        false => "another user's command is running or was killed: wait until it ends, or choose another name",
    }
}

fn in_use_error(path: &Path, who: &str) -> LockError {
    LockError::InUse { path: path.to_path_buf(), holder: who.to_string(), unknown: false }
}

/// Requests a lock on an open file, without waiting.
fn answer(file: &File) -> Result<Answer, Errno> {
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Answer::Granted),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(Answer::Refused),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::INVAL) => Ok(Answer::None),
        Err(error) => Err(error),
    }
}

/// Reads the description of the holder, if there is one.
fn described_holder(mut file: &File) -> io::Result<Option<Holder>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(MOST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("loaders-lock-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The lock between two processes is tested in tests/runs with the real program.
    #[test]
    fn a_lock_names_its_holder_and_forgets_it_at_the_end() {
        let folder = folder("name");
        let path = folder.join(".trireme-lock");
        let lock = LockFile::take(&path, false).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Holder>(&text).unwrap().process, std::process::id());
        assert!(!lock.is_lost());
        drop(lock);
        assert_eq!(fs::read(&path).unwrap(), b"");
        drop(LockFile::take(&path, false).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }

    /// A command that was killed leaves its lock file, which then describes a process that does not exist.
    #[test]
    fn a_lock_beside_an_output_leaves_no_file() {
        let folder = folder("beside");
        let lock_of = |name: &str| LockFile::beside(&folder.join(name)).unwrap().path().to_path_buf();
        assert_eq!(lock_of("table.csv"), folder.join(".table.csv.trireme-lock"));
        let longest = "x".repeat(safe_create::LONGEST_NAME);
        for (name, left) in [("table.csv", false), ("table.csv", true), (&*longest, false), (&*longest, true)] {
            let path = lock_of(name);
            let killed = left.then(|| Holder { process: 4_194_305, ..Holder::me() });
            killed.iter().for_each(|killed| fs::write(&path, serde_json::to_vec(killed).unwrap()).unwrap());
            let lock = LockFile::beside(&folder.join(name)).unwrap();
            assert_eq!(lock.path(), path);
            assert_eq!(described_holder(&lock.file).unwrap().unwrap().process, std::process::id());
            drop(lock);
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_lock_that_was_stolen_is_lost() {
        let folder = folder("stolen");
        let path = folder.join("lock");
        let lock = LockFile::take(&path, false).unwrap();
        lock.check().unwrap();
        assert_eq!(lock.current_path(), path.canonicalize().ok());
        let thief = LockFile::replace(&path, Holder { host: "n2".into(), ..Holder::me() }, false).unwrap();
        assert!(lock.is_lost() && !thief.is_lost() && lock.current_path().is_none());
        assert_mentions(&lock.check().unwrap_err().to_string(), &[&path.display().to_string(), "another command"]);
        thief.check().unwrap();
        drop(lock);
        assert!(fs::read_to_string(&path).unwrap().contains("\"n2\""), "the new holder stays in the file");
        assert!(thief.is_own());
        fs::remove_dir_all(folder).unwrap();
    }

    /// Two hosts that do not see each other's locks may lock the same file. The last description in the file decides.
    #[test]
    fn the_description_of_another_holder_stays() {
        let folder = folder("twice");
        for temporary in [false, true] {
            let path = folder.join("lock");
            let mut lock = LockFile::take(&path, false).unwrap();
            lock.temporary = temporary;
            assert!(lock.is_own());
            let other = serde_json::to_vec(&Holder { host: "n2".into(), ..Holder::me() }).unwrap();
            fs::write(&path, &other).unwrap();
            assert!(!lock.is_own());
            drop(lock);
            assert_eq!(fs::read(&path).unwrap(), other);
            fs::remove_file(path).unwrap();
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_symbolic_link_instead_of_the_lock_is_refused() {
        let folder = folder("link");
        let path = folder.join(".trireme-lock");
        fs::write(folder.join("victim"), "precious").unwrap();
        std::os::unix::fs::symlink("victim", &path).unwrap();
        let error = LockFile::take(&path, true).unwrap_err();
        assert_mentions(&error.to_string(), &[&path.display().to_string(), "symbolic link"]);
        assert_eq!(fs::read(folder.join("victim")).unwrap(), b"precious");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_message_says_what_to_do() {
        let error =
            |unknown| LockError::InUse { path: ".t.csv.trireme-lock".into(), holder: "process 7".into(), unknown };
        let said = |unknown| error(unknown).message(Path::new("t.csv"), "--out");
        assert_mentions(&said(false), &["t.csv", "process 7", "wait", "another --out"]);
        assert_mentions(&said(true), &["process 7", "another --out", "remove .t.csv.trireme-lock"]);
        assert!(!said(false).contains("remove"), "{}", said(false));
        assert!(denied_advice(7, 7).contains("permissions") && denied_advice(0, 7).contains("another user"));
    }

    /// Only a file that exists has an owner to give advice about.
    #[test]
    fn only_denied_access_gets_advice() {
        let folder = folder("denied");
        let path = folder.join("lock");
        let refused = |kind: io::ErrorKind| refused(&path)(kind.into()).to_string();
        assert!(!refused(io::ErrorKind::PermissionDenied).contains("; "));
        fs::write(&path, "").unwrap();
        assert!(refused(io::ErrorKind::PermissionDenied).contains("; "));
        assert!(!refused(io::ErrorKind::StorageFull).contains("; "));
        fs::remove_dir_all(folder).unwrap();
    }

    /// The next run in a renamed folder must find no holder there.
    #[test]
    fn a_lock_in_a_renamed_folder_is_released() {
        let folder = folder("renamed");
        fs::create_dir(folder.join("old")).unwrap();
        let lock = LockFile::take(&folder.join("old/.trireme-lock"), false).unwrap();
        fs::rename(folder.join("old"), folder.join("new")).unwrap();
        drop(lock);
        assert_eq!(fs::read(folder.join("new/.trireme-lock")).unwrap(), b"");
        fs::remove_dir_all(folder).unwrap();
    }
}

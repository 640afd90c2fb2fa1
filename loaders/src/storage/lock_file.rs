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
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::environment;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::filesystem;
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
/// End of the name of a lock file next to an output.
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
            if !lock.is_own() {
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

    /// Returns true if the file still describes this process.
    fn is_own(&self) -> bool {
        let found = described_holder(&self.file).ok().flatten();
        is_at(&self.file, &self.path) && found.as_ref() == Some(&self.holder)
    }
}

impl Drop for LockFile {
    /// Removes or empties the file, so that the next process finds no holder.
    fn drop(&mut self) {
        if self.is_own() {
            let _ = if self.temporary { fs::remove_file(&self.path) } else { self.file.set_len(0) };
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
        let denied = source.kind() == io::ErrorKind::PermissionDenied;
        let other = "; another user's command is running or was killed: wait until it ends, or choose another name";
        let more = match fs::symlink_metadata(path) {
            Ok(about) if denied && about.uid() == geteuid().as_raw() => "; correct its permissions or its folder's",
            Ok(_) if denied => other,
            _ => "",
        };
        let source = if denied { io::Error::new(source.kind(), format!("{source}{more}")) } else { source };
        LockError::File { path: path.to_path_buf(), source }
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

/// A process that uses an output. The lock file contains this description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    host: String,
    /// The kernel's boot id of the host. It changes with every boot.
    boot: String,
    process: u32,
    /// Start time of the process in kernel ticks after boot. Distinguishes processes with the same id.
    ticks: u64,
    /// Time when the process took the lock, in seconds since 1970.
    since: u64,
    /// The Slurm job of the process, if it runs in one.
    job: Option<Job>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Job {
    id: String,
    /// Number of times that Slurm has restarted the job with this id.
    restarts: u64,
}

/// Response of the file system to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// This process has the lock now.
    Granted,
    /// Another process has the lock.
    Refused,
    /// This file system does not support locks.
    None,
}

/// Result of judging whether a lock may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// No running process uses the output.
    Free,
    /// The holder has ended, but the file system still has its lock.
    Left,
    /// The holder is still running.
    Held,
    /// The holder is on another host and cannot be checked from here.
    Unknown,
}

impl Holder {
    fn me() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let process = std::process::id();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self {
            host: read("/proc/sys/kernel/hostname"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            process,
            ticks: ticks(process).unwrap_or(0),
            since,
            job: Job::mine(environment::variable),
        }
    }

    /// Decides whether this process (`self`) may take the lock from `holder`. `answer` is the result of requesting
    /// a lock. `everywhere` is true if the file system applies locks to all hosts.
    fn judge(&self, holder: &Holder, answer: Answer, everywhere: bool) -> Claim {
        let same_boot = self.boot == holder.boot;
        let here = same_boot && self.host == holder.host;
        let rebooted = !same_boot && self.host == holder.host;
        // Slurm restarts a job only after all of its processes have ended
        let requeued = self.job.as_ref().zip(holder.job.as_ref()).is_some_and(|(me, it)| me.comes_after(it));
        match answer {
            // within one boot, the kernel sees the locks of all processes, even in other containers
            Answer::Granted if same_boot || rebooted || requeued || everywhere => Claim::Free,
            Answer::Granted => Claim::Unknown,
            Answer::Refused if same_boot => Claim::Held,
            Answer::Refused if requeued => Claim::Left,
            Answer::Refused => Claim::Unknown,
            Answer::None if rebooted || requeued => Claim::Free,
            Answer::None if here => {
                if holder.is_alive() {
                    Claim::Held
                } else {
                    Claim::Free
                }
            }
            Answer::None => Claim::Unknown,
        }
    }

    /// Returns true if the described process is running on this host. The start time excludes a later process with the
    /// same id.
    fn is_alive(&self) -> bool {
        ticks(self.process) == Some(self.ticks)
    }

    /// Returns true if the holder's first thread has ended because the process was killed. Its other threads will end
    /// soon, and then the kernel releases the lock.
    fn is_ending(&self) -> bool {
        self.is_alive() && field(self.process, 3).is_some_and(|state| state == "Z" || state == "X")
    }

    /// Formats process, host, job and age for the user. `now` is in seconds since 1970.
    fn describe(&self, now: u64) -> String {
        let job = self.job.as_ref().map_or(String::new(), |job| format!(", Slurm job {}", job.id));
        let seconds = now.saturating_sub(self.since);
        let age = match seconds {
            0..=119 => format!("{seconds} s"),
            120..=7199 => format!("{} min", seconds / 60),
            _ => format!("{} h", seconds / 3600),
        };
        format!("process {} on {}{job}, for {age}", self.process, self.host)
    }
}

impl Job {
    fn mine(lookup: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let restarts = lookup("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
        Some(Self { id: lookup("SLURM_JOB_ID")?, restarts })
    }

    fn comes_after(&self, other: &Self) -> bool {
        self.id == other.id && self.restarts > other.restarts
    }
}

/// Returns the start time of a process in kernel ticks after boot.
fn ticks(process: u32) -> Option<u64> {
    field(process, 22)?.parse().ok()
}

/// Returns the field with this number, counted from 1, in /proc/PROCESS/stat. The second field is the process name,
/// which may contain any character, so the fields after it are counted from its end. `number` must be at least 3.
fn field(process: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(number.checked_sub(3)?)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    use Answer::{Granted, None as NoLocks, Refused};

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
        let own = refused(&std::env::current_exe().unwrap())(io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(own.contains("permissions") && !own.contains("another user"), "{own}");
    }

    fn on(host: &str, boot: &str, job: Option<(&str, u64)>) -> Holder {
        let job = job.map(|(id, restarts)| Job { id: id.into(), restarts });
        Holder { host: host.into(), boot: boot.into(), process: 4_194_305, ticks: 7, since: 100, job }
    }

    #[test]
    fn on_one_host_the_kernel_decides() {
        let me = on("n1", "b1", None);
        for everywhere in [true, false] {
            let judge = |holder: &Holder, answer| me.judge(holder, answer, everywhere);
            assert_eq!(judge(&me, Granted), Claim::Free, "killed");
            assert_eq!(judge(&me, Refused), Claim::Held);
            // a container has its own host name, but the same boot id
            assert_eq!(judge(&on("c1", "b1", None), Refused), Claim::Held);
            assert_eq!(judge(&on("n1", "b0", None), Granted), Claim::Free, "the host has restarted");
            // there is no process with this id
            assert_eq!(judge(&me, NoLocks), Claim::Free);
            let alive = Holder { ticks: ticks(std::process::id()).unwrap(), process: std::process::id(), ..me.clone() };
            assert_eq!(judge(&alive, NoLocks), Claim::Held);
            assert_eq!(judge(&Holder { ticks: 7, ..alive }, NoLocks), Claim::Free, "the process id was reused");
        }
    }

    #[test]
    fn a_lock_decides_for_other_hosts_where_it_counts_there() {
        let (me, other) = (on("n1", "b1", None), on("n2", "b2", None));
        assert_eq!(me.judge(&other, Granted, true), Claim::Free);
        assert_eq!(me.judge(&other, Granted, false), Claim::Unknown);
        assert_eq!(me.judge(&other, Refused, true), Claim::Unknown);
        assert_eq!(me.judge(&other, NoLocks, false), Claim::Unknown);
    }

    #[test]
    fn a_job_that_is_started_again_has_ended_before() {
        let before = on("n2", "b2", Some(("77", 0)));
        let again = on("n1", "b1", Some(("77", 1)));
        for everywhere in [true, false] {
            assert_eq!(again.judge(&before, Granted, everywhere), Claim::Free);
            assert_eq!(again.judge(&before, Refused, everywhere), Claim::Left);
            assert_eq!(again.judge(&before, NoLocks, everywhere), Claim::Free);
            // the same job without a restart, and another job
            for me in [on("n1", "b1", Some(("77", 0))), on("n1", "b1", Some(("78", 1)))] {
                assert_eq!(me.judge(&before, Refused, everywhere), Claim::Unknown);
            }
        }
    }

    #[test]
    fn this_process_is_described() {
        let me = Holder::me();
        assert!(me.is_alive() && !me.boot.is_empty() && !me.host.is_empty(), "{me:?}");
        let holder = Holder {
            host: "n1".into(),
            process: 12,
            since: 100,
            job: Some(Job { id: "77".into(), restarts: 0 }),
            ..me
        };
        assert_mentions(&holder.describe(130), &["process 12", "n1", "Slurm job 77", "30 s"]);
        assert!(holder.describe(100 + 7200).ends_with("for 2 h") && holder.describe(0).ends_with("for 0 s"));
    }

    #[test]
    fn slurm_counts_restarts() {
        let job = |name: &str| {
            [("SLURM_JOB_ID", "77"), ("SLURM_RESTART_COUNT", "2")].iter().find(|(n, _)| *n == name).map(|n| n.1.into())
        };
        assert_eq!(Job::mine(job), Some(Job { id: "77".into(), restarts: 2 }));
        assert_eq!(Job::mine(|_| None), None);
    }
}

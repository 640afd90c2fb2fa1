//! The lock on an output directory. The file OUT/.trireme-lock describes the process that uses the directory. Only rank
//! 0 takes the lock.
//!
//! It is a POSIX byte-range lock (fcntl). NFS and Lustre share these locks between hosts, and the kernel releases them
//! when the process ends. The description in the file is used for messages, and on file systems that have no locks or
//! do not share them between hosts. At a normal end the process empties the file. It does not remove the file, because
//! then two runs could lock two different files of this name.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comm::launcher;
use loaders::filesystem;
use loaders::safe_create::{self, NewFile, is_at};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How many times to check a lock file without a description. Its holder may be about to write it, or to replace the
/// file.
const START_TRIES: u32 = 20;
/// How many times to check a lock whose holder was killed. The kernel keeps the lock until the last thread of the
/// holder has ended, which takes seconds on a busy machine.
const END_TRIES: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Advice for the user if another run uses the directory.
const WAIT: &str = "wait until that run ends, or choose another --out";
/// Maximum length of a holder's description in bytes.
const MOST: u64 = 4096;

/// The lock on an output directory. Dropping it releases the directory.
#[derive(Debug)]
pub struct OutLock {
    /// Must be the only open handle of this process to the file. POSIX releases the lock when the process closes any
    /// handle to the file.
    file: File,
    path: PathBuf,
}

/// Result of one attempt to lock the file.
enum LockState {
    Locked(OutLock),
    /// The lock file may be replaced, because its holder has ended or the user requests it.
    Replace(PathBuf),
    /// Another process is just creating, replacing or describing the lock. Check again later.
    Again,
    /// The holder was killed and is about to end. Return this error if it does not end in time.
    Ending(Error),
}

impl OutLock {
    /// Locks the directory `out`, which must exist. With `steal` set, also takes the directory from a run on another
    /// host whose state cannot be checked. Returns an error that describes the other run if the directory is in use.
    pub fn take(out: &Path, steal: bool) -> Result<Self, Error> {
        let path = out.join(".trireme-lock");
        let refuse = Error::file("lock", &path);
        let me = Holder::me();
        let mut left = END_TRIES;
        let mut beginning = START_TRIES;
        loop {
            let held = match try_lock(out, &path, &me, steal)? {
                LockState::Locked(lock) => {
                    lock.write(&me).map_err(refuse)?;
                    return Ok(lock);
                }
                LockState::Replace(path) => return Self::replace(path.clone(), &me).map_err(refuse),
                LockState::Ending(held) => held,
                LockState::Again => {
                    beginning -= 1;
                    in_use_error(out, "another run that is just starting", WAIT)
                }
            };
            left -= 1;
            if left.min(beginning) == 0 {
                return Err(held);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Works like [`OutLock::take`], but returns `None` if there is no lock file in `out`.
    pub fn take_if_there(out: &Path, steal: bool) -> Result<Option<Self>, Error> {
        let there = fs::symlink_metadata(out.join(".trireme-lock")).is_ok();
        there.then(|| Self::take(out, steal)).transpose()
    }

    /// Replaces the lock file by a new file that this process has locked.
    fn replace(path: PathBuf, me: &Holder) -> std::io::Result<Self> {
        let mut new = NewFile::private(&path)?;
        // the result is ignored, because the attempt before has already shown whether the file system supports locks
        let _ = answer(new.file()?);
        let text = serde_json::to_vec(me)?;
        new.file()?.write_all(&text)?;
        Ok(Self { file: new.publish()?, path })
    }

    fn write(&self, me: &Holder) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(&serde_json::to_vec(me)?, 0)?;
        self.file.sync_all()
    }

    /// Returns an error if another run has taken the directory, so that this run must not write there any more. Returns
    /// no error if the directory itself is gone (see [`OutLock::is_gone`]), because the next write then fails.
    pub fn check(&self) -> Result<(), Error> {
        if is_at(&self.file, &self.path) || fs::symlink_metadata(&self.path).is_err() {
            return Ok(());
        }
        Err(Error::TakenOver(self.folder().to_path_buf()))
    }

    /// Returns true if the directory does not exist any more. Returns false if the file system reports another error.
    pub fn is_gone(&self) -> bool {
        fs::metadata(self.folder()).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
}

impl Drop for OutLock {
    /// Empties the file, so that the next run finds no holder.
    fn drop(&mut self) {
        if is_at(&self.file, &self.path) {
            let _ = self.file.set_len(0);
        }
    }
}

/// Tries to lock the file once. Creates the file if it is missing.
fn try_lock(out: &Path, path: &Path, me: &Holder, steal: bool) -> Result<LockState, Error> {
    let refuse = Error::file("lock", path);
    let mut file = safe_create::to_update_private(path).map_err(refuse)?;
    let answer = answer(&file).map_err(|error| refuse(error.into()))?;
    let holder = holder(&mut file).map_err(refuse)?;
    if !is_at(&file, path) || (answer == Answer::Refused && holder.is_none()) {
        return Ok(LockState::Again);
    }
    let everywhere = filesystem::locks_everywhere(out);
    let claim = holder.as_ref().map_or(Claim::Free, |holder| me.judge(holder, answer, everywhere));
    let ending = holder.as_ref().is_some_and(Holder::is_ending);
    let who = holder.map_or(String::new(), |holder| holder.describe(me.since));
    match claim {
        Claim::Free if answer == Answer::None => Ok(LockState::Replace(path.to_path_buf())),
        Claim::Free => Ok(LockState::Locked(OutLock { file, path: path.to_path_buf() })),
        Claim::Left => Ok(LockState::Replace(path.to_path_buf())),
        Claim::Unknown if steal => Ok(LockState::Replace(path.to_path_buf())),
        Claim::Held if ending => Ok(LockState::Ending(in_use_error(out, &who, WAIT))),
        Claim::Held => Err(in_use_error(out, &who, WAIT)),
        Claim::Unknown => Err(in_use_error(
            out,
            &who,
            "wait until that run ends, or choose another --out. That host cannot be checked from here: if you know that the run has \
             ended, add --steal-lock",
        )),
    }
}

fn in_use_error(out: &Path, who: &str, cure: &str) -> Error {
    Error::Usage(format!("{} is in use by {who}; {cure}", out.display()))
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
fn holder(file: &mut File) -> std::io::Result<Option<Holder>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(MOST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// A process that uses an output directory. The lock file contains this description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub host: String,
    /// The kernel's boot id of the host. It changes with every boot.
    pub boot: String,
    pub process: u32,
    /// Start time of the process in kernel ticks after boot. Distinguishes processes with the same id.
    pub ticks: u64,
    /// Time when the process took the directory, in seconds since 1970.
    pub since: u64,
    /// The Slurm job of the process, if it runs in one.
    pub job: Option<Job>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    /// How many times Slurm has restarted the job with this id.
    pub restarts: u64,
}

/// Response of the file system to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This process has the lock now.
    Granted,
    /// Another process has the lock.
    Refused,
    /// This file system does not support locks.
    None,
}

/// Result of judging whether a directory may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No running process uses the directory.
    Free,
    /// The holder has ended, but the file system still has its lock.
    Left,
    /// The holder is still running.
    Held,
    /// The holder is on another host and cannot be checked from here.
    Unknown,
}

impl Holder {
    pub fn me() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let process = std::process::id();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self {
            host: read("/proc/sys/kernel/hostname"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            process,
            ticks: ticks(process).unwrap_or(0),
            since,
            job: Job::mine(launcher::variable),
        }
    }

    /// Decides whether this process (`self`) may take the directory from `holder`. `answer` is the result of requesting
    /// a lock. `everywhere` is true if the file system applies locks to all hosts.
    pub fn judge(&self, holder: &Holder, answer: Answer, everywhere: bool) -> Claim {
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
    pub fn is_ending(&self) -> bool {
        self.is_alive() && field(self.process, 3).is_some_and(|state| state == "Z" || state == "X")
    }

    /// Formats process, host, job and age for the user. `now` is in seconds since 1970.
    pub fn describe(&self, now: u64) -> String {
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

    use Answer::{Granted, None as NoLocks, Refused};

    fn folder(name: &str) -> PathBuf {
        let out = std::env::temp_dir().join(format!("trireme-lock-{name}-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        out
    }

    /// The lock between two processes is tested in tests/runs with the real program.
    #[test]
    fn a_lock_names_its_holder_and_forgets_it_at_the_end() {
        let out = folder("name");
        assert!(OutLock::take_if_there(&out, false).unwrap().is_none() && fs::read_dir(&out).unwrap().count() == 0);
        let lock = OutLock::take(&out, false).unwrap();
        let text = fs::read_to_string(out.join(".trireme-lock")).unwrap();
        assert_eq!(serde_json::from_str::<Holder>(&text).unwrap().process, std::process::id());
        lock.check().unwrap();
        drop(lock);
        assert_eq!(fs::read(out.join(".trireme-lock")).unwrap(), b"");
        assert!(OutLock::take_if_there(&out, false).unwrap().is_some());
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn a_lock_that_was_stolen_is_lost() {
        let out = folder("stolen");
        let lock = OutLock::take(&out, false).unwrap();
        let path = out.join(".trireme-lock");
        let thief = OutLock::replace(path.clone(), &Holder { host: "n2".into(), ..Holder::me() }).unwrap();
        let error = lock.check().unwrap_err();
        assert!(matches!(&error, Error::TakenOver(folder) if *folder == out), "{error:?}");
        support::mentions(error, &["--steal-lock"]);
        drop(lock);
        assert!(fs::read_to_string(&path).unwrap().contains("\"n2\""), "the new holder stays in the file");
        thief.check().unwrap();
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn a_symbolic_link_instead_of_the_lock_is_refused() {
        let out = folder("link");
        fs::write(out.join("victim"), "precious").unwrap();
        std::os::unix::fs::symlink("victim", out.join(".trireme-lock")).unwrap();
        assert!(OutLock::take(&out, true).unwrap_err().to_string().contains("symbolic link"));
        assert_eq!(fs::read(out.join("victim")).unwrap(), b"precious");
        fs::remove_dir_all(out).unwrap();
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
        support::mentions(holder.describe(130), &["process 12", "n1", "Slurm job 77", "30 s"]);
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

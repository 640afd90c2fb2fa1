//! The lock on an output folder: OUT/.trireme-lock, in which the run that has the folder names itself. Rank 0 alone locks.
//!
//! The lock is POSIX's byte-range lock (fcntl), which NFS and Lustre carry to other hosts and which every kernel drops with its process;
//! the name in the file is for messages, and for file systems whose locks end at the host or are none at all. A good end empties the file.
//! The file itself stays: removing it would let two runs lock two files of that name.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comm::launcher;
use loaders::filesystem;
use loaders::safe_create::{self, NewFile};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Looks at a lock whose holder has not written its name yet, or which is being replaced.
const TRIES: u32 = 20;
/// Looks at a lock whose holder was killed: it has the lock until its last thread is gone, on a busy machine for seconds.
const ENDING: u32 = 600;
/// Between two looks.
const NAP: Duration = Duration::from_millis(50);
/// What to do where a run has the folder.
const WAIT: &str = "wait for its end, or choose another --out";
/// Longer than the name of any holder.
const MOST: u64 = 4096;

/// The lock on an output folder. Dropping it gives the folder back.
#[derive(Debug)]
pub struct OutLock {
    /// Closing any other handle of this process to the file would drop the lock.
    file: File,
    path: PathBuf,
}

/// What a look at the lock file has found.
enum Look {
    Locked(OutLock),
    /// Its holder is over, or the user says so.
    Replace(PathBuf),
    /// To be looked at again.
    Again,
    /// The holder is about to end, with this error if it does not.
    Ending(Error),
}

impl OutLock {
    /// Takes the folder `out`, which must be there. `steal`: also from a run on another host that cannot be asked.
    ///
    /// # Errors
    /// If another run has it; the message names that.
    pub fn take(out: &Path, steal: bool) -> Result<Self, Error> {
        let path = out.join(".trireme-lock");
        let refuse = |source| Error::File { action: "lock", path: path.clone(), source };
        let me = Holder::me();
        let mut left = ENDING;
        let mut beginning = TRIES;
        loop {
            let held = match look(out, &path, &me, steal)? {
                Look::Locked(lock) => {
                    lock.write(&me).map_err(refuse)?;
                    return Ok(lock);
                }
                Look::Replace(path) => return Self::replace(path.clone(), &me).map_err(refuse),
                Look::Ending(held) => held,
                Look::Again => {
                    beginning -= 1;
                    taken(out, "another run that is about to begin", WAIT)
                }
            };
            left -= 1;
            if left.min(beginning) == 0 {
                return Err(held);
            }
            std::thread::sleep(NAP);
        }
    }

    /// The same where an earlier run has left its lock file in `out`; none where there is no such file.
    pub fn take_if_there(out: &Path, steal: bool) -> Result<Option<Self>, Error> {
        let there = fs::symlink_metadata(out.join(".trireme-lock")).is_ok();
        there.then(|| Self::take(out, steal)).transpose()
    }

    /// Puts a lock file of this process in the place of one whose holder is over.
    fn replace(path: PathBuf, me: &Holder) -> std::io::Result<Self> {
        let mut new = NewFile::private(&path)?;
        // a file system without locks has been asked before
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

    /// Fails if another run has taken the folder meanwhile: nothing may be written there any more. Where the folder itself is gone
    /// ([`OutLock::is_gone`]), the next file to be written says so.
    pub fn check(&self) -> Result<(), Error> {
        if is_at(&self.file, &self.path) || fs::symlink_metadata(&self.path).is_err() {
            return Ok(());
        }
        let out = self.folder().display();
        let cure = "this run writes nothing more there, and ends";
        Err(Error::Failed(format!(
            "{out} was taken by another run, with --steal-lock or after its lock file was removed: {cure}"
        )))
    }

    /// Whether the folder is no longer there; a system that does not answer is no proof.
    pub fn is_gone(&self) -> bool {
        fs::metadata(self.folder()).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
}

impl Drop for OutLock {
    /// Whoever comes next finds no holder to ask for.
    fn drop(&mut self) {
        if is_at(&self.file, &self.path) {
            let _ = self.file.set_len(0);
        }
    }
}

/// Looks once at the lock file, which it creates if it is missing.
fn look(out: &Path, path: &Path, me: &Holder, steal: bool) -> Result<Look, Error> {
    let refuse = |source| Error::File { action: "lock", path: path.to_path_buf(), source };
    let mut file = safe_create::to_update_private(path).map_err(refuse)?;
    let answer = answer(&file).map_err(|error| refuse(error.into()))?;
    let holder = holder(&mut file).map_err(refuse)?;
    if !is_at(&file, path) || (answer == Answer::Refused && holder.is_none()) {
        return Ok(Look::Again);
    }
    let everywhere = filesystem::locks_everywhere(out);
    let claim = holder.as_ref().map_or(Claim::Free, |holder| me.judge(holder, answer, everywhere));
    let ending = holder.as_ref().is_some_and(Holder::is_ending);
    let who = holder.map_or(String::new(), |holder| holder.describe(me.since));
    match claim {
        Claim::Free if answer == Answer::None => Ok(Look::Replace(path.to_path_buf())),
        Claim::Free => Ok(Look::Locked(OutLock { file, path: path.to_path_buf() })),
        Claim::Left => Ok(Look::Replace(path.to_path_buf())),
        Claim::Unknown if steal => Ok(Look::Replace(path.to_path_buf())),
        Claim::Held if ending => Ok(Look::Ending(taken(out, &who, WAIT))),
        Claim::Held => Err(taken(out, &who, WAIT)),
        Claim::Unknown => Err(taken(
            out,
            &who,
            "wait for its end, or choose another --out; that host cannot be asked from here: if you know that the run is over, add \
             --steal-lock",
        )),
    }
}

fn taken(out: &Path, who: &str, cure: &str) -> Error {
    Error::Usage(format!("{} is in use by {who}; {cure}", out.display()))
}

/// Locks a file, if that is possible at once.
fn answer(file: &File) -> Result<Answer, Errno> {
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Answer::Granted),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(Answer::Refused),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::INVAL) => Ok(Answer::None),
        Err(error) => Err(error),
    }
}

/// The name in a lock file, if there is one.
fn holder(file: &mut File) -> std::io::Result<Option<Holder>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(MOST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// Whether an open file still has this name.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |(a, b): (fs::Metadata, fs::Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().ok().zip(fs::symlink_metadata(path).ok()).is_some_and(same)
}

/// A process that writes to an output folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its host's name.
    pub host: String,
    /// The kernel's id of that host's present uptime: another after every boot.
    pub boot: String,
    /// Its number.
    pub process: u32,
    /// When it began, in the kernel's ticks after boot: numbers of processes come again.
    pub ticks: u64,
    /// Seconds since 1970 when it took the folder.
    pub since: u64,
    /// Its job, if it is in one.
    pub job: Option<Job>,
}

/// A job of Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: String,
    /// How often it has been started again under that number.
    pub restarts: u64,
}

/// What the file system says to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is this process's now.
    Granted,
    /// Another process has it.
    Refused,
    /// This file system has no locks.
    None,
}

/// Whether a folder may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody has it any more.
    Free,
    /// Its holder is over, and the lock is left of it.
    Left,
    /// Its holder is at work.
    Held,
    /// Its holder is on another host, and cannot be asked from here.
    Unknown,
}

impl Holder {
    /// This process.
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

    /// What of this folder's `holder` follows for this process (`self`) from the file system's answer. `everywhere`: whether a lock counts
    /// on all hosts of the file system.
    pub fn judge(&self, holder: &Holder, answer: Answer, everywhere: bool) -> Claim {
        let same_boot = self.boot == holder.boot;
        let here = same_boot && self.host == holder.host;
        let rebooted = !same_boot && self.host == holder.host;
        // Slurm starts a job again when all of it has ended
        let requeued = self.job.as_ref().zip(holder.job.as_ref()).is_some_and(|(me, it)| me.comes_after(it));
        match answer {
            // the kernel knows its own processes, in whatever container they are
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

    /// Whether a process of this host is the holder.
    fn is_alive(&self) -> bool {
        ticks(self.process) == Some(self.ticks)
    }

    /// Whether it is such a process whose first thread is over, because it was killed: the others will be soon, and its locks with them.
    pub fn is_ending(&self) -> bool {
        self.is_alive() && field(self.process, 3).is_some_and(|state| state == "Z" || state == "X")
    }

    /// For people: process, host, job, and for how long, `now` in seconds since 1970.
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

/// When a process began.
fn ticks(process: u32) -> Option<u64> {
    field(process, 22)?.parse().ok()
}

/// A field of /proc/N/stat behind its name, which is the second and may hold anything.
fn field(process: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(number.checked_sub(3)?)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let out = std::env::temp_dir().join(format!("trireme-lock-{name}-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        out
    }

    /// Between processes it is tried by the real program, in tests/runs.
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
        assert!(lock.check().unwrap_err().to_string().contains("--steal-lock"));
        drop(lock);
        assert!(fs::read_to_string(&path).unwrap().contains("\"n2\""), "the thief's name stays");
        thief.check().unwrap();
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let out = folder("link");
        fs::write(out.join("victim"), "precious").unwrap();
        std::os::unix::fs::symlink("victim", out.join(".trireme-lock")).unwrap();
        assert!(OutLock::take(&out, true).unwrap_err().to_string().contains("symbolic link"));
        assert_eq!(fs::read(out.join("victim")).unwrap(), b"precious");
        fs::remove_dir_all(out).unwrap();
    }
}

#[cfg(test)]
mod holder_tests {
    use super::*;
    use Answer::{Granted, None as NoLocks, Refused};

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
            // a container has a name of its own
            assert_eq!(judge(&on("c1", "b1", None), Refused), Claim::Held);
            assert_eq!(judge(&on("n1", "b0", None), Granted), Claim::Free, "before a power cut");
            // no process has this number
            assert_eq!(judge(&me, NoLocks), Claim::Free);
            let alive = Holder { ticks: ticks(std::process::id()).unwrap(), process: std::process::id(), ..me.clone() };
            assert_eq!(judge(&alive, NoLocks), Claim::Held);
            assert_eq!(judge(&Holder { ticks: 7, ..alive }, NoLocks), Claim::Free, "the number came again");
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
            // two steps of one job, and another job
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
        assert_eq!(holder.describe(130), "process 12 on n1, Slurm job 77, for 30 s");
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

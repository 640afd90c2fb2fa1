//! Who has an output folder, as its lock file says, and whether that process can still be at work. Pure but for the questions to /proc.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use comm::launcher;
use serde::{Deserialize, Serialize};

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

//! The description of a process in a lock file, and the decision whether another process may take its lock.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use base::environment;
use serde::{Deserialize, Serialize};

/// A process that uses an output. The lock file contains this description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holder {
    pub host: String,
    /// The kernel's boot id of the host. It changes with every boot.
    pub boot: String,
    pub process: u32,
    /// Start time of the process in kernel ticks after boot. Distinguishes processes with the same id.
    pub ticks: u64,
    /// Time when the process took the lock, in seconds since 1970.
    pub since: u64,
    /// The Slurm job of the process, if it runs in one.
    pub job: Option<Job>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    id: String,
    /// Number of times that Slurm has restarted the job with this id.
    restarts: u64,
}

/// Response of the file system to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// This process has the lock now.
    Granted,
    /// Another process has the lock.
    Refused,
    /// This file system does not support locks.
    None,
}

/// Result of judging whether a lock may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
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
            job: Job::mine(environment::variable),
        }
    }

    /// Decides whether this process (`self`) may take the lock from `holder`. `answer` is the result of requesting
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
    use crate::mentions::assert_mentions;

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

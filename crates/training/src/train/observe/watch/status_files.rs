//! Status files of the ranks: OUT/.ranks/RANK has a line of JSON, which the rank overwrites every few seconds.
//!
//! Each rank has its own file, because network file systems lose writes if several nodes write to one file. All files have the same fixed
//! length, so that a reader never sees half a line. A file is opened and closed for each write, because only then NFS sends the change to
//! the server. Errors are ignored, because they must not end a run.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use loaders::safe_create;
use serde::{Deserialize, Serialize};

/// Length of a file in bytes.
const LENGTH: usize = 1024;

/// Maximum number of addresses in each list of a status.
const ADDRESSES: usize = 4;

/// The first rank that prints the last message of a killed run creates this file, so that no other rank prints it.
const LAST: &str = "last-words";

pub struct StatusFiles {
    folder: PathBuf,
    pub(super) rank: usize,
    pub(super) host: String,
    neighbours: Vec<Neighbour>,
}

/// Another rank on this host.
struct Neighbour {
    rank: usize,
    /// Its status when this rank first looked for its process. Its process number does not change.
    status: OnceLock<Status>,
}

impl StatusFiles {
    /// Creates the directory for the status files in `out`. `neighbours` are the other ranks on this host.
    pub fn new(out: &Path, rank: usize, neighbours: &[usize]) -> Self {
        let neighbours = neighbours.iter().map(|&rank| Neighbour { rank, status: OnceLock::new() }).collect();
        let status_files = Self { folder: folder(out), rank, host: host(), neighbours };
        // if the directory is a link, this would write files to another folder
        if is_link(&status_files.folder) {
            let _ = fs::remove_file(&status_files.folder);
        }
        let _ = fs::create_dir(&status_files.folder);
        status_files
    }

    fn file(&self, rank: usize) -> PathBuf {
        self.folder.join(rank.to_string())
    }

    /// Overwrites this rank's status.
    pub fn write(&self, status: &Status) {
        let few = |all: &BTreeSet<IpAddr>| all.iter().copied().take(ADDRESSES).collect();
        let (own_addresses, silent_addresses) = (few(&status.own_addresses), few(&status.silent_addresses));
        let status = Status { host: self.host.clone(), own_addresses, silent_addresses, ..status.clone() };
        let Ok(mut line) = serde_json::to_vec(&status) else { return };
        line.resize(LENGTH - 1, b' ');
        line.push(b'\n');
        if let Ok(mut file) = safe_create::to_update(&self.file(self.rank)) {
            let _ = file.write_all(&line);
        }
    }

    /// Reads a rank's status. Returns `None` if there is no file or the file is incomplete.
    pub fn read(&self, rank: usize) -> Option<Status> {
        serde_json::from_slice(&fs::read(self.file(rank)).ok()?).ok()
    }

    /// Lists the ranks on this host that have no process any more. Reads a file only once per rank while its process
    /// exists, because all ranks of a large run call this repeatedly after SIGTERM.
    pub fn gone(&self) -> Vec<String> {
        let known = self.neighbours.iter().filter_map(|Neighbour { rank, status }| {
            if status.get().is_none() {
                let _ = status.set(self.read(*rank)?);
            }
            Some((*rank, status.get()?))
        });
        let here = known.filter(|(_, status)| status.host == self.host);
        // a rank that ends regularly removes its file before its process ends, perhaps after this rank has read the file
        let gone = here.filter(|(rank, status)| !runs(status.pid) && self.read(*rank).is_some());
        gone.map(|(rank, status)| format!("rank {rank} on {} (process {})", status.host, status.pid)).collect()
    }

    /// Returns true if this rank is the first of all ranks to call this. Only that rank may print the last message.
    pub fn claims_last_message(&self) -> bool {
        safe_create::create_new(&self.folder.join(LAST)).is_ok()
    }

    /// Removes this rank's status file. The rank that removes its file last also removes the directory.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.file(self.rank));
        let _ = fs::remove_file(self.folder.join(LAST));
        // fails as long as other ranks have files in the directory
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes the status files of an earlier run in `out`. It may have had more ranks, and this run may have no watchdog
/// that would replace them.
pub fn remove_old_status_files(out: &Path) {
    let folder = folder(out);
    // if the directory is a link, this would remove files of another folder
    if !is_link(&folder) {
        let old = fs::read_dir(&folder).into_iter().flatten().flatten();
        old.for_each(|file| drop(fs::remove_file(file.path())));
        let _ = fs::remove_dir(&folder);
    }
}

fn folder(out: &Path) -> PathBuf {
    out.join(".ranks")
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

/// Returns true if the process exists and has not ended.
fn runs(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("State:"))
        .is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // cut long names, because the file has a fixed length
    name.trim().chars().take(64).collect()
}

/// Work may take this many times longer than a wait. Planning, a step, and the copy of a data set are work.
pub const SLOWER: u32 = 10;

/// What a rank is doing. The rank writes this to its status file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Number of this status. It changes with each write, so that a reader recognises a new status.
    pub beat: u64,
    pub host: String,
    pub pid: u32,
    /// Number of the last MPI operation that the rank started. All ranks number the same operations in the same order.
    pub operation: u64,
    pub name: String,
    /// True while the operation runs.
    pub inside: bool,
    /// Seconds since the operation started or, if it has ended, since its end.
    pub operation_s: f64,
    /// The rank's activity outside communication.
    pub activity: String,
    /// Seconds since the activity began.
    pub activity_s: f64,
    /// True if the activity is a wait for files or for a device, see [`Activity::is_wait`](super::Activity::is_wait).
    pub waiting: bool,
    /// True if the activity is copying the data set, which may take long.
    pub staging: bool,
    /// This node's addresses in the TCP connections of the rank. Known only while the rank waits in an operation.
    pub own_addresses: BTreeSet<IpAddr>,
    /// Addresses that do not acknowledge the rank's data, see [`comm::network::connections`].
    pub silent_addresses: BTreeSet<IpAddr>,
}

impl Status {
    /// Returns the factor that multiplies the limits for the current operation or activity: 1 for waits, [`SLOWER`] for work. If `alone` is
    /// set, there are no other ranks, so an operation does not count as a wait.
    pub(super) fn patience(&self, alone: bool) -> u32 {
        if self.waiting || (self.inside && !alone) { 1 } else { SLOWER }
    }

    /// Returns what this rank waits for or does, and the duration in seconds, divided by its [patience](Self::patience). Returns `None`
    /// outside operations if no activity was recorded yet.
    pub fn waits(&self, alone: bool) -> Option<(String, f64)> {
        match self.inside && !alone {
            true => Some((format!("\"{}\" (operation {})", self.name, self.operation), self.operation_s)),
            false => {
                let known = !self.activity.is_empty();
                known.then(|| (self.activity.clone(), self.still() / f64::from(self.patience(alone))))
            }
        }
    }

    /// Returns the seconds since this rank last began or ended something. Inside an operation, this is the time since
    /// the operation began. Outside, it is the time since the last operation ended or the activity began, whichever is
    /// shorter.
    pub(super) fn still(&self) -> f64 {
        if self.inside { self.operation_s } else { self.activity_s.min(self.operation_s) }
    }

    /// Returns true if this rank reports a wait, so that the rank with the status `other` stays silent. Both ranks are
    /// given by their numbers. Of the ranks that wait in an operation, the rank with the earliest operation reports,
    /// because the others are further ahead. If operations are equal, the lowest rank reports. If no rank waits in an
    /// operation, the lowest rank that waits for files or a device reports.
    pub(super) fn reports_before(&self, rank: usize, other: &Status, other_rank: usize) -> bool {
        match other.inside {
            true => self.inside && (self.operation, rank) < (other.operation, other_rank),
            false => self.inside || (rank < other_rank && self.waiting),
        }
    }

    /// Describes the last known activity of this rank.
    pub(super) fn last(&self) -> String {
        let still = self.still();
        match self.inside {
            true => format!("is in \"{}\" (operation {}) for {still:.0} s", self.name, self.operation),
            false => format!("{} for {still:.0} s", self.activity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_comes_back_whole_and_a_clean_end_leaves_nothing() {
        let out = std::env::temp_dir().join(format!("trireme-status-{}", std::process::id()));
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(&out).unwrap();
        // left by a killed run with more ranks
        fs::create_dir(out.join(".ranks")).unwrap();
        for old in ["0", "7", LAST] {
            fs::write(out.join(".ranks").join(old), "").unwrap();
        }
        remove_old_status_files(&out);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
        let (zero, one) = (StatusFiles::new(&out, 0, &[1]), StatusFiles::new(&out, 1, &[0]));
        assert!(zero.read(1).is_none());
        let many: BTreeSet<IpAddr> = (0..100u128).map(|i| IpAddr::from((u128::MAX - i).to_be_bytes())).collect();
        let long = Status {
            beat: 7,
            name: "sum of losses and statistics".into(),
            activity: "x".repeat(80),
            own_addresses: many.clone(),
            silent_addresses: many,
            ..Status::default()
        };
        one.write(&long);
        // a shorter line completely replaces a longer one, because the length of the file is fixed
        one.write(&Status { beat: 8, activity: "computes step 3".into(), ..long });
        let read = zero.read(1).unwrap();
        assert_eq!((read.beat, read.activity.as_str(), read.silent_addresses.len()), (8, "computes step 3", ADDRESSES));
        assert_eq!(fs::metadata(out.join(".ranks/1")).unwrap().len(), LENGTH as u64);
        // an incomplete file counts as a missing status
        fs::write(out.join(".ranks/1"), &fs::read(out.join(".ranks/1")).unwrap()[..40]).unwrap();
        assert!(zero.read(1).is_none());
        zero.write(&Status { pid: std::process::id(), ..Status::default() });
        // the process has ended but its parent has not waited for it yet
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        assert_eq!(one.gone(), Vec::<String>::new());
        zero.write(&Status { pid: ended.id(), ..Status::default() });
        let (earlier, one) = (one, StatusFiles::new(&out, 1, &[0]));
        while one.gone().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(one.gone()[0].ends_with(&format!("(process {})", ended.id())), "{:?}", one.gone());
        ended.wait().unwrap();
        // the process that `earlier` has seen still runs, and rank 0 is no neighbour of the last
        assert_eq!([earlier.gone(), StatusFiles::new(&out, 1, &[]).gone()], [const { Vec::<String>::new() }; 2]);
        assert_eq!(([one.claims_last_message(), zero.claims_last_message()], one.gone().len()), ([true, false], 1));
        one.remove();
        assert!(out.join(".ranks").exists());
        zero.remove();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
        fs::remove_dir_all(&out).unwrap();
    }
}

//! The ranks' news as files: OUT/.ranks/RANK, one line of JSON each, written again in place every few seconds.
//!
//! One file a rank, since network file systems lose writes of several nodes to one file; of a fixed length, so that a reader never sees
//! half a line; opened and closed each time, since NFS passes changes on then. Nothing here can end a run: what cannot be written or read
//! is ignored.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use loaders::safe_create;
use serde::{Deserialize, Serialize};

/// Bytes of a file.
const LENGTH: usize = 512;

/// The file of the rank that has spoken for all.
const LAST: &str = "last-words";

/// Where this rank and the others leave their news.
pub struct Beacon {
    folder: PathBuf,
    rank: usize,
    host: String,
}

impl Beacon {
    /// Under the output folder `out`. Rank 0 removes what an earlier run left.
    pub fn new(out: &Path, rank: usize, ranks: usize) -> Self {
        let beacon = Self { folder: out.join(".ranks"), rank, host: host() };
        if rank == 0 {
            (0..ranks).for_each(|rank| drop(fs::remove_file(beacon.file(rank))));
            let _ = fs::remove_file(beacon.folder.join(LAST));
        }
        // a link would lead the files elsewhere
        if fs::symlink_metadata(&beacon.folder).is_ok_and(|meta| meta.is_symlink()) {
            let _ = fs::remove_file(&beacon.folder);
        }
        let _ = fs::create_dir(&beacon.folder);
        beacon
    }

    fn file(&self, rank: usize) -> PathBuf {
        self.folder.join(rank.to_string())
    }

    /// Replaces this rank's news.
    pub fn write(&self, news: News) {
        let Ok(mut line) = serde_json::to_vec(&News { host: self.host.clone(), ..news }) else { return };
        line.resize(LENGTH - 1, b' ');
        line.push(b'\n');
        if let Ok(mut file) = safe_create::to_update(&self.file(self.rank)) {
            let _ = file.write_all(&line);
        }
    }

    /// A rank's news, if there are any.
    pub fn read(&self, rank: usize) -> Option<News> {
        serde_json::from_slice(&fs::read(self.file(rank)).ok()?).ok()
    }

    /// The ranks on this host, of so many, whose processes are no more.
    pub fn gone(&self, ranks: usize) -> Vec<String> {
        let others = (0..ranks).filter(|rank| *rank != self.rank);
        let here = others.filter_map(|rank| Some((rank, self.read(rank)?))).filter(|(_, news)| news.host == self.host);
        let gone = here.filter(|(_, news)| !runs(news.pid));
        gone.map(|(rank, news)| format!("rank {rank} on {} (process {})", news.host, news.pid)).collect()
    }

    /// Whether this rank is the first that has last words.
    pub fn speaks_last(&self) -> bool {
        safe_create::create_new(&self.folder.join(LAST)).is_ok()
    }

    /// Removes this rank's file; the last rank removes the folder.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.file(self.rank));
        let _ = fs::remove_file(self.folder.join(LAST));
        // refused while other ranks' files are there
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Whether a process is there and has not ended.
fn runs(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("State:"))
        .is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // long names would not fit
    name.trim().chars().take(64).collect()
}

/// How many times longer work may take than a wait. Planning, a step and the copy of a data set are work.
pub const SLOWER: u32 = 10;

/// One rank's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct News {
    /// Counts the messages.
    pub beat: u64,
    /// The node.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Number of the operation of MPI that it took up last; equal on all ranks that keep step.
    pub operation: u64,
    /// The operation's name.
    pub name: String,
    /// Whether it is still in it.
    pub inside: bool,
    /// Seconds since it went in, or came out.
    pub operation_s: f64,
    /// What it does beside communication.
    pub activity: String,
    /// Seconds since that began.
    pub activity_s: f64,
    /// True if the activity is a wait for files, see [`Activity::is_wait`](super::Activity::is_wait).
    pub waiting: bool,
    /// True if the activity is copying the data set, which may take long.
    pub staging: bool,
}

impl News {
    /// Returns what this rank waits for or does, and for how many seconds. Seconds of work are divided by [`SLOWER`]. If `alone` is set,
    /// waits for other ranks are not considered.
    pub fn waits(&self, alone: bool) -> Option<(String, f64)> {
        match self.inside && !alone {
            true => Some((format!("\"{}\" (operation {})", self.name, self.operation), self.operation_s)),
            false => {
                let patience = if self.waiting { 1 } else { SLOWER };
                let known = !self.activity.is_empty();
                known.then(|| (self.activity.clone(), self.still() / f64::from(patience)))
            }
        }
    }

    /// Seconds since it last began anything.
    pub(super) fn still(&self) -> f64 {
        if self.inside { self.operation_s } else { self.activity_s.min(self.operation_s) }
    }

    /// The last thing that it is known to have done.
    pub(super) fn last(&self) -> String {
        let still = self.still();
        match self.inside {
            true => format!("is in \"{}\" (operation {}) for {still:.0} s", self.name, self.operation),
            false => format!("{} for {still:.0} s", self.activity),
        }
    }
}

/// Another rank, as seen from this one.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(super) news: Option<News>,
    /// When its last message came, or when the first was looked for.
    pub(super) heard: Instant,
}

impl Peer {
    /// A rank without any message yet.
    pub fn unheard(now: Instant) -> Self {
        Self { news: None, heard: now }
    }

    /// Takes news; only a new beat counts as a sign of life.
    pub fn hear(&mut self, news: News, now: Instant) {
        if self.news.as_ref().is_none_or(|old| old.beat != news.beat) {
            *self = Self { news: Some(news), heard: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_back_whole_and_a_clean_end_leaves_nothing() {
        let out = std::env::temp_dir().join(format!("trireme-beacon-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let (zero, one) = (Beacon::new(&out, 0, 2), Beacon::new(&out, 1, 2));
        assert!(zero.read(1).is_none());
        let long =
            News { beat: 7, name: "sum of losses and statistics".into(), activity: "x".repeat(80), ..News::default() };
        one.write(long.clone());
        // a shorter line replaces a longer one without a rest
        one.write(News { beat: 8, activity: "computes step 3".into(), ..long });
        let read = zero.read(1).unwrap();
        assert_eq!((read.beat, read.activity.as_str()), (8, "computes step 3"));
        assert_eq!(fs::metadata(out.join(".ranks/1")).unwrap().len(), LENGTH as u64);
        // what is cut short is no news
        fs::write(out.join(".ranks/1"), &fs::read(out.join(".ranks/1")).unwrap()[..40]).unwrap();
        assert!(zero.read(1).is_none());
        zero.write(News { pid: std::process::id(), ..News::default() });
        // the one that ended, and one that nobody waits for
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        assert_eq!(one.gone(2), Vec::<String>::new());
        zero.write(News { pid: ended.id(), ..News::default() });
        while one.gone(2).is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(one.gone(2)[0].ends_with(&format!("(process {})", ended.id())), "{:?}", one.gone(2));
        ended.wait().unwrap();
        assert_eq!(([one.speaks_last(), zero.speaks_last()], one.gone(2).len()), ([true, false], 1));
        one.remove();
        assert!(out.join(".ranks").exists());
        zero.remove();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
        fs::remove_dir_all(&out).unwrap();
    }
}

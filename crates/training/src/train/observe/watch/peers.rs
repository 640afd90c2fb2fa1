//! The other ranks as known to this rank.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use base::lock;

use super::status_files::{Status, StatusFiles};

/// Another rank, as known to this rank.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(super) status: Option<Status>,
    /// Time when its last new status was read, or when this rank last knew that it need not read the status.
    pub(super) last_change: Instant,
}

impl Peer {
    /// Creates the state for a rank before its first status is read.
    pub fn without_status(now: Instant) -> Self {
        Self { status: None, last_change: now }
    }

    /// Stores a status. Only a status with a new `beat` counts as a sign of life.
    pub fn update(&mut self, status: Status, now: Instant) {
        if self.status.as_ref().is_none_or(|old| old.beat != status.beat) {
            *self = Self { status: Some(status), last_change: now };
        }
    }
}

/// All ranks. Empty until this rank shares its status.
#[derive(Debug, Default)]
pub struct Peers {
    pub(super) all: Vec<Peer>,
    /// The rank that reports a wait instead of this rank. This rank reads no other statuses while the reporter gives signs
    /// of life.
    reporter: Option<usize>,
}

impl Peers {
    /// Creates the state for `ranks` ranks before their first statuses are read.
    pub fn without_statuses(ranks: usize) -> Self {
        Self { all: vec![Peer::without_status(Instant::now()); ranks], reporter: None }
    }

    /// Returns true if another rank reports the wait and has given a sign of life within `limit`.
    pub fn are_reported(&self, limit: Duration) -> bool {
        self.reporter.is_some_and(|rank| self.all[rank].last_change.elapsed() <= limit)
    }

    /// Reads the statuses of other ranks, from the next lower rank down to rank 0 and then of the higher ranks. Stops at
    /// the first rank that reports a wait before this rank, whose status is `me`. So if all N ranks wait, the reporting
    /// rank reads N files and each other rank one. If each of them read N files every few seconds, a thousand ranks would
    /// overload a parallel file system.
    ///
    /// If a rank that should report has given no sign of life within `fresh`, reads all files, because its neighbours may
    /// be dead too. Their silence is then measured at the same time.
    pub fn read(peers: &Mutex<Self>, files: &StatusFiles, me: &Status, fresh: Duration) {
        let ranks = lock(peers).all.len();
        let mut unread = (0..files.rank).rev().chain(files.rank + 1..ranks);
        let (mut reporter, mut is_silent) = (None, false);
        for rank in unread.by_ref() {
            // reads without the lock, because the file system may hang
            let Some(status) = files.read(rank) else { continue };
            let reports = status.reports_before(rank, me, files.rank);
            let mut peers = lock(peers);
            peers.all[rank].update(status, Instant::now());
            if reports && peers.all[rank].last_change.elapsed() > fresh {
                is_silent = true;
            } else if reports && !is_silent {
                reporter = Some(rank);
                break;
            }
        }
        let mut peers = lock(peers);
        unread.for_each(|rank| peers.all[rank].last_change = Instant::now());
        peers.reporter = reporter;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_status_again_is_no_sign_of_life() {
        let then = Instant::now().checked_sub(Duration::from_secs(50)).unwrap();
        let mut peer = Peer::without_status(then);
        peer.update(Status { beat: 3, ..Status::default() }, then);
        peer.update(Status { beat: 3, ..Status::default() }, Instant::now());
        assert_eq!(peer.last_change, then);
        peer.update(Status { beat: 4, ..Status::default() }, Instant::now());
        assert_ne!(peer.last_change, then);
    }

    #[test]
    fn only_the_reporting_rank_reads_all_statuses() {
        let (out, minute) =
            (std::env::temp_dir().join(format!("trireme-peers-{}", std::process::id())), Duration::from_secs(60));
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out).unwrap();
        let files: Vec<StatusFiles> = (0..6).map(|rank| StatusFiles::new(&out, rank, &[])).collect();
        let waits = Status { beat: 1, operation: 7, inside: true, ..Status::default() };
        // rank 1 works, and the other ranks wait for it
        let status = |rank| Status { operation: if rank == 1 { 6 } else { 7 }, inside: rank != 1, ..waits.clone() };
        files.iter().for_each(|own| own.write(&status(own.rank)));
        let read = |rank: usize, peers: &Mutex<Peers>, fresh| {
            Peers::read(peers, &files[rank], &status(rank), fresh);
            let peers = lock(peers);
            let known: Vec<usize> = (0..6).filter(|rank| peers.all[*rank].status.is_some()).collect();
            (known, peers.reporter, peers.are_reported(minute))
        };
        let new = || Mutex::new(Peers::without_statuses(6));
        assert_eq!(read(5, &new(), minute), (vec![4], Some(4), true));
        assert_eq!(read(2, &new(), minute), (vec![0, 1], Some(0), true));
        assert_eq!(read(0, &new(), minute), (vec![1, 2, 3, 4, 5], None, false));
        // the ranks that rank 5 did not read are not silent
        let peers = new();
        let long_ago = Instant::now().checked_sub(2 * minute).unwrap();
        lock(&peers).all[0].last_change = long_ago;
        read(5, &peers, minute);
        assert!(lock(&peers).all[0].last_change > long_ago);
        // without signs of life from rank 4, rank 5 reads all, because other ranks may be silent too
        lock(&peers).all[4].last_change = long_ago;
        assert!(!lock(&peers).are_reported(minute));
        assert_eq!(read(5, &peers, minute), (vec![0, 1, 2, 3, 4], None, false));
        std::fs::remove_dir_all(&out).unwrap();
    }
}

//! The ranks' states as they share them while MPI may be stuck.

use std::time::Instant;

use serde::{Deserialize, Serialize};

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

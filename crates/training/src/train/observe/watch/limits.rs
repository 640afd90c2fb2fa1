//! How long a rank may wait.

use std::time::Duration;

/// Waits that are too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wait after which the watchdog prints a warning; again after twice that, four times, and so on. `None`: never.
    pub warn: Option<Duration>,
    /// Wait after which it ends the run. `None`: never.
    pub abort: Option<Duration>,
}

impl Default for Limits {
    /// A warning after a minute; the end after half an hour: no step, record or file takes that long, and file systems that recover at
    /// all have done so by then.
    fn default() -> Self {
        Self { warn: Some(Duration::from_secs(60)), abort: Some(Duration::from_secs(1800)) }
    }
}

impl Limits {
    /// The shortest wait that calls for anything.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.warn.into_iter().chain(self.abort).min()
    }

    /// Time between two looks, and between two signs of life: rare enough for a file system that a thousand ranks share.
    pub(super) fn period(&self) -> Duration {
        let eighth = self.shortest().unwrap_or(Duration::MAX) / 8;
        eighth.clamp(Duration::from_millis(50), Duration::from_secs(5))
    }
}

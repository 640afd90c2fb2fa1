//! Limits the bytes a conversion may write, because a small file can list the same image a million times.

use crate::error::Error;
use crate::text;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The default limit is this factor times the source's bytes, plus [`BESIDE`].
const TIMES: u64 = 64;
/// Bytes added to the default limit.
const BESIDE: u64 = 1 << 30;

/// The output limit, shared by all threads.
pub(super) struct OutputLimit {
    /// The value passed with `--max-output`.
    given: Option<u64>,
    /// The source's total bytes if known, otherwise the bytes read up to now.
    source: AtomicU64,
    /// True if `source` is the total.
    is_known: bool,
    /// Shard bytes that earlier attempts wrote.
    before: u64,
    written: AtomicU64,
}

impl OutputLimit {
    /// Creates a limit. `source` is the source's size in bytes if known, and `before` counts the shard bytes already in the output.
    pub fn new(given: Option<u64>, source: Option<u64>, before: u64) -> Self {
        let (is_known, source) = (source.is_some(), AtomicU64::new(source.unwrap_or(0)));
        OutputLimit { given, source, is_known, before, written: AtomicU64::new(0) }
    }

    /// Counts bytes read from the source.
    pub fn read(&self, bytes: usize) {
        if !self.is_known {
            self.source.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Counts bytes that will be written below `dir`.
    ///
    /// # Errors
    /// Returns an error if the total exceeds the limit.
    pub fn write(&self, dir: &Path, bytes: usize) -> Result<(), Error> {
        let written = self.written.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64);
        self.check(dir, written, "take")
    }

    /// Rejects a conversion before it writes anything if the estimated output is far above the limit.
    ///
    /// # Errors
    /// Returns an error if a quarter of the estimate exceeds the limit and the source's size is known or `--max-output` is set.
    pub fn check_estimate(&self, dir: &Path, needed: u64) -> Result<(), Error> {
        let is_known = self.is_known || self.given.is_some();
        if is_known { self.check(dir, needed / 4, "would take") } else { Ok(()) }
    }

    fn check(&self, dir: &Path, written: u64, take: &str) -> Result<(), Error> {
        let source = self.source.load(Ordering::Relaxed);
        let most = match self.given {
            Some(most) => most.saturating_sub(self.before),
            None => source.saturating_mul(TIMES).saturating_add(BESIDE),
        };
        if written <= most {
            return Ok(());
        }
        let why = match self.given {
            Some(most) => format!("the {} of --max-output", text::bytes(most)),
            None => format!("{TIMES} times the source's {} and 1 GiB", text::bytes(source)),
        };
        Err(Error::input(dir, format!("the shards {take} more than {why}; if they are meant to, raise --max-output")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_grows_with_the_source() {
        let dir = Path::new("out");
        let known = OutputLimit::new(None, Some(1000), 0);
        known.read(1 << 40);
        assert!(known.write(dir, (1 << 30) + 64_000).is_ok());
        let error = known.write(dir, 1).unwrap_err().to_string();
        assert!(
            error.contains("64 times the source's 1000 bytes and 1 GiB; if they are meant to, raise --max-output"),
            "{error}"
        );
        assert!(known.check_estimate(dir, 4 << 30).is_ok() && known.check_estimate(dir, 5 << 30).is_err());
        let read = OutputLimit::new(None, None, 1 << 50);
        assert!(read.check_estimate(dir, u64::MAX).is_ok());
        read.read(10 << 30);
        assert!(read.write(dir, 600 << 30).is_ok() && read.write(dir, 50 << 30).is_err());
        let given = OutputLimit::new(Some(100), None, 90);
        assert!(given.write(dir, 10).is_ok());
        assert!(given.write(dir, 1).unwrap_err().to_string().contains("more than the 100 bytes of --max-output"));
    }
}

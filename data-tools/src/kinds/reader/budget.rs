//! The memory that reading one source may take: what its files unpack to, and what is made of them.

use crate::error::Error;
use loaders::Limits;
use std::io::{self, Read};
use std::path::Path;

/// The memory of one source.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// Bytes of its files.
    input: u64,
    /// Bytes of memory taken.
    taken: u64,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, input: 0, taken: 0 }
    }

    /// Adds a file of the source.
    pub(crate) fn add_file(&mut self, bytes: u64) {
        self.input = self.input.saturating_add(bytes);
    }

    /// The bytes that may still be taken.
    pub(crate) fn left(&self) -> u64 {
        self.limits.allowed(self.input).saturating_sub(self.taken)
    }

    /// Takes memory for the content of `path`.
    ///
    /// # Errors
    /// If that is more than is left.
    pub(crate) fn take(&mut self, path: &Path, bytes: u64) -> Result<(), Error> {
        if bytes > self.left() {
            return Err(self.exceeded(path));
        }
        self.taken += bytes;
        Ok(())
    }

    /// The error of a file that takes more memory than is left.
    pub(crate) fn exceeded(&self, path: &Path) -> Error {
        let Budget { limits, input, taken } = self;
        let (allowed, mib) = (limits.allowed(*input) as f64 / 1e6, limits.memory >> 20);
        let beside =
            if *taken > 0 { format!(" beside {:.1} MB of other files", *taken as f64 / 1e6) } else { String::new() };
        let what = format!(
            "unpacked it takes more than the {allowed:.1} MB that are allowed ({mib} MiB and four times the source's \
             size){beside}; if it is meant to be so large, raise --limit-memory"
        );
        Error::input(path, what)
    }

    /// `stream`, which fails with [`io::ErrorKind::FileTooLarge`] behind all that is left.
    pub(crate) fn bounded<R: Read>(&self, stream: R) -> Bounded<R> {
        Bounded { stream, left: self.left() }
    }
}

/// A stream of limited length.
pub(crate) struct Bounded<R> {
    stream: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.stream.read(out)?;
        self.left = self.left.checked_sub(got as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(got)
    }
}

/// Reads a stream to its end, in steps that grow memory by a quarter at most and never beyond `most` bytes; `None` if it is longer.
pub(crate) fn read_bounded(stream: &mut dyn Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut data = Vec::new();
    loop {
        let step = (data.len() / 4).max(1 << 16).min(most - data.len());
        if step == 0 {
            return Ok(if stream.read(&mut [0])? == 0 { Some(data) } else { None });
        }
        data.try_reserve_exact(step).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if stream.take(step as u64).read_to_end(&mut data)? < step {
            return Ok(Some(data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_all_that_can_be_taken() {
        let mut budget = Budget::new(Limits::with_memory(1000));
        budget.add_file(10);
        assert_eq!(budget.left(), 1040);
        budget.take(Path::new("a"), 1000).unwrap();
        let error = budget.take(Path::new("b"), 41).unwrap_err().to_string();
        assert!(error.starts_with("b: unpacked it takes more") && error.contains("--limit-memory"), "{error}");
        budget.take(Path::new("c"), 40).unwrap();
        assert_eq!(budget.left(), 0);
        let mut out = Vec::new();
        let bounded = Budget::new(Limits::with_memory(5)).bounded(&b"123456"[..]).read_to_end(&mut out);
        assert_eq!(bounded.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn streams_up_to_a_length() {
        let bytes: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        for length in [0, 1, 65_535, 65_536, 65_537, 200_000, 300_000] {
            let read = |most| read_bounded(&mut &bytes[..length], most).unwrap();
            assert_eq!(read(300_000).as_deref(), Some(&bytes[..length]));
            assert_eq!(read(length as u64).as_deref(), Some(&bytes[..length]));
            assert!(length == 0 || read(length as u64 - 1).is_none());
        }
    }
}

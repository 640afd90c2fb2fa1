//! The error type of this crate; its messages say what to do.

use crate::text;
use loaders::{printable, printable_lines, why};
use std::io;
use std::path::{Path, PathBuf};

/// Everything that can go wrong while a data set is made, checked or measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request that makes no sense (exit code 2 of a command line).
    #[error("{}", printable_lines(.0))]
    Usage(String),
    /// The output exists and holds something.
    #[error("{}: {what}; choose another OUT or remove this one first", text::path(path))]
    OutTaken {
        /// The requested output.
        path: PathBuf,
        /// What is there.
        what: String,
    },
    /// A file or folder that does not exist.
    #[error("{}: not found; {}", text::path(path), printable(hint))]
    Missing {
        /// The path that was expected.
        path: PathBuf,
        /// What belongs there, or what to try.
        hint: String,
    },
    /// A source file or a data set with content that its format does not allow.
    #[error("{}: {}", text::path(path), printable(what))]
    Input {
        /// The file at fault.
        path: PathBuf,
        /// Where in it, expected, got, and what to try.
        what: String,
    },
    /// Unusable lines in a list.
    #[error("{}: {count} cannot be used:\n  {}\n{cure}", text::path(path), lines.join("\n  "))]
    Lines {
        /// The list's path.
        path: PathBuf,
        /// The number of lines, as text.
        count: Box<str>,
        /// The problem with each line.
        lines: Box<[String]>,
        /// Advice for the user.
        cure: Box<str>,
    },
    /// A record of a shard that cannot be used.
    #[error("{}: record {record} at byte {offset}: {}", text::path(shard), printable(what))]
    Record {
        /// The shard file.
        shard: PathBuf,
        /// Number of the record in its shard, from 0.
        record: u64,
        /// Byte offset of the record in its shard.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// No space left for the output.
    #[error(
        "{}: no space left ({source}){}: free some space or choose an OUT on another file system",
        text::path(path),
        needed.map_or_else(String::new, |n| format!("; the data set needs about {n} bytes ({})", text::bytes(n)))
    )]
    DiskFull {
        /// The file that was being written.
        path: PathBuf,
        /// Estimated bytes of the whole output, where they are known.
        needed: Option<u64>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Any other failure of the operating system.
    #[error("{}: cannot {action}: {}", text::path(path), why(path, source))]
    Io {
        /// The attempted action: "read", "create", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An error of the `loaders` crate (`dataset.json`, shards, indexes).
    #[error(transparent)]
    Loaders(#[from] loaders::Error),
    /// A decoder or encoder could not be set up.
    #[error("libjpeg-turbo cannot be set up: {0}; is there memory left?")]
    Codec(String),
    /// A conversion that stopped; its finished shards stay for the next attempt.
    #[error(
        "{source}\n{kept} of {shards} shards are finished and kept in {}: run the same command again to go on, or remove \
         that folder",
        text::path(partial)
    )]
    Stopped {
        /// Why.
        source: Box<Error>,
        /// Shards that are finished.
        kept: usize,
        /// Shards in all.
        shards: usize,
        /// The folder that holds them.
        partial: PathBuf,
    },
    /// A worker thread panicked: a defect of this program.
    #[error("a worker thread panicked: {0}; this is a fault of trireme, please report it")]
    Panic(String),
}

impl Error {
    /// True if the request is at fault, not the data.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Usage(_) | Error::OutTaken { .. } => true,
            Error::Stopped { source, .. } => source.is_usage(),
            Error::Loaders(error) => error.is_usage(),
            _ => false,
        }
    }

    /// A failed system call on `path`; `action` completes "cannot ...".
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io { action, path: path.to_path_buf(), source }
    }

    /// A failed write of an output that takes `needed` bytes in all.
    pub(crate) fn write(path: &Path, needed: impl Into<Option<u64>>, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { path: path.to_path_buf(), needed: needed.into(), source }
            }
            _ => Error::io("write", path, source),
        }
    }

    /// Reports an unusable record in `shard`, with its index and byte offset.
    pub(crate) fn record(shard: &Path, (record, offset): (u64, u64), what: String) -> Self {
        Error::Record { shard: shard.to_path_buf(), record, offset, what }
    }

    /// Malformed content of `path`.
    pub(crate) fn input(path: &Path, what: impl Into<String>) -> Self {
        Error::Input { path: path.to_path_buf(), what: what.into() }
    }
}

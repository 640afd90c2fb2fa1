//! The error type of this crate. Each message also says what the user can do.

use crate::text;
use base::text::{printable, printable_lines};
use loaders::why;
use std::io;
use std::path::{Path, PathBuf};

/// An error while making, checking or measuring a data set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid request. The command line exits with code 2.
    #[error("{}", printable_lines(.0))]
    Usage(String),
    /// The output already exists and is not empty.
    #[error("{}: {what}; choose another OUT or remove this one first", text::path(path))]
    OutTaken {
        path: PathBuf,
        /// Describes the existing output.
        what: String,
    },
    /// A file or folder that does not exist.
    #[error("{}: not found; {}", text::path(path), printable(hint))]
    Missing {
        path: PathBuf,
        /// Says what was expected at the path, or what to try.
        hint: String,
    },
    /// Content of a source file or data set that its format does not allow.
    #[error("{}: {}", text::path(path), printable(what))]
    Input {
        path: PathBuf,
        /// The position in the file, what was expected and found, and what to try.
        what: String,
    },
    /// A list that contains unusable lines.
    #[error("{}: {count} cannot be used:\n  {}\n{cure}", text::path(path), lines.join("\n  "))]
    Lines {
        path: PathBuf,
        /// How many lines are unusable, with the noun, such as "3 lines".
        count: Box<str>,
        /// One message per unusable line. Long lists may be shortened.
        lines: Box<[String]>,
        cure: Box<str>,
    },
    /// An unusable record in a shard.
    #[error("{}: record {record} at byte {offset}: {}", text::path(shard), printable(what))]
    Record {
        shard: PathBuf,
        /// Index of the record in its shard, from 0.
        record: u64,
        offset: u64,
        what: String,
    },
    /// The disk or the quota is full.
    #[error(
        "{}: no space left ({source}){}: free some space or choose an OUT on another file system",
        text::path(path),
        needed.map_or_else(String::new, |n| format!("; the data set needs about {n} bytes ({})", text::bytes(n)))
    )]
    DiskFull {
        /// The file that could not be written.
        path: PathBuf,
        /// Estimated size of the whole output in bytes, if known.
        needed: Option<u64>,
        source: io::Error,
    },
    /// An I/O error other than a full disk.
    #[error("{}: cannot {action}: {}", text::path(path), why(path, source))]
    Io {
        /// Completes "cannot ...", for example "read" or "create the folder".
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// An error of the `loaders` crate (`dataset.json`, shards, indexes).
    #[error(transparent)]
    Loaders(#[from] loaders::Error),
    /// libjpeg-turbo could not create a decoder or encoder.
    #[error("cannot initialize libjpeg-turbo: {0}; is there enough memory?")]
    Codec(String),
    /// A conversion that failed but keeps its finished shards for the next attempt.
    #[error(
        "{source}\n{kept} of {shards} shards are finished and kept in {}: run the same command again to continue, or remove that folder",
        text::path(partial)
    )]
    Stopped {
        source: Box<Error>,
        /// Number of shards that are finished and kept.
        kept: usize,
        /// Number of shards that the whole data set will have.
        shards: usize,
        /// The folder with the finished shards.
        partial: PathBuf,
    },
    /// A worker thread panicked. This is a bug in trireme.
    #[error("a worker thread panicked: {0}; this is a bug in trireme, please report it")]
    Panic(String),
}

impl Error {
    /// Returns true if the request is wrong, not the data.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Usage(_) | Error::OutTaken { .. } => true,
            Error::Stopped { source, .. } => source.is_usage(),
            Error::Loaders(error) => error.is_usage(),
            _ => false,
        }
    }

    /// Creates an I/O error. `action` completes "cannot ...".
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io { action, path: path.to_path_buf(), source }
    }

    /// Creates an error for a failed write. If the disk is full, the message includes `needed`, the size of the whole
    /// output in bytes.
    pub(crate) fn write(path: &Path, needed: impl Into<Option<u64>>, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { path: path.to_path_buf(), needed: needed.into(), source }
            }
            _ => Error::io("write", path, source),
        }
    }

    /// Creates an error for a missing file or folder.
    pub(crate) fn missing(path: impl Into<PathBuf>, hint: impl Into<String>) -> Self {
        Error::Missing { path: path.into(), hint: hint.into() }
    }

    /// Creates an error for an unusable record, given the record's index and byte offset.
    pub(crate) fn record(shard: &Path, (record, offset): (u64, u64), what: String) -> Self {
        Error::Record { shard: shard.to_path_buf(), record, offset, what }
    }

    pub(crate) fn input(path: &Path, what: impl Into<String>) -> Self {
        Error::Input { path: path.to_path_buf(), what: what.into() }
    }
}

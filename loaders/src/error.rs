//! The error type of this crate. Each message says where the error happened, what was expected, what was found and what
//! to try. The caller adds the rank.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, io};

use base::text::{nearest, plural, printable};
use rustix::process::{Resource, getrlimit};

use crate::fault::Fault;
use crate::spec::Images;

/// The problem of a transform that needs images of the same size.
pub(crate) const VARIOUS_SIZES: &str = "the images have various sizes; begin the list with random_resized_crop(size) or \
                                        inception_crop(size), or with resize(size) and then center_crop(size) or random_crop(size)";

/// The reason why a data set, a pipeline or a loader cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system reported an error.
    #[error("cannot {action} {path}: {}", why(path, source), path = line(path.display()))]
    Io {
        /// "open", "map", "write" and so on.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file became shorter after it was opened: `expected` bytes were requested at `offset`, but only `got` are left.
    #[error(
        "{path}: cannot read {expected} bytes at byte offset {offset}: the file ends after {got} of them; it was cut short \
         while in use: restore it and check with `trireme data verify`", path = line(path.display())
    )]
    ShortRead { path: PathBuf, offset: u64, expected: u64, got: u64 },
    /// There is not enough space for a copy.
    #[error(
        "{dir}: the copy needs {}, but only {} are free; choose another --stage folder, or omit --stage", size(*needed), size(*free),
        dir = line(dir.display())
    )]
    Space {
        /// The directory for the copy.
        dir: PathBuf,
        /// Additional space that the copy needs, in bytes.
        needed: u64,
        /// Bytes that can be written to `dir`.
        free: u64,
    },
    /// The directory for copies is not private: another user owns it, or may be able to read or change it. `problem` also
    /// says what to do.
    #[error("{}: {problem}", line(dir.display()))]
    NotPrivate { dir: PathBuf, problem: String },
    /// A copy differs from its source. `expected` is the CRC-32C of the source, and `got` the CRC-32C of the copy.
    #[error(
        "{}: the copy has checksum {got:08x}, but its source has {expected:08x}; the disk of the --stage folder may be damaged: \
         choose another folder",
        line(path.display())
    )]
    BadCopy { path: PathBuf, expected: u32, got: u32 },
    /// A file had `expected` bytes when its copy began, but `got` bytes were copied.
    #[error(
        "{}: its size changed from {expected} to {got} bytes while it was copied to the --stage folder; start again when no other \
         program writes to the data set",
        line(path.display())
    )]
    SizeChanged { path: PathBuf, expected: u64, got: u64 },
    /// The request needs more memory than the machine has. Both numbers are in bytes.
    #[error("{what} would take {}, but this machine has {}; try {cure}", size(*needed), size(*memory))]
    Memory {
        /// Subject of the message, such as "the loader".
        what: String,
        needed: u64,
        memory: u64,
        /// How to reduce the need for memory.
        cure: String,
    },
    /// The images have another channel count than `dataset.json` says.
    #[error(
        "the images have {}, but dataset.json says {expected}; convert them again, or use the dataset.json that belongs to \
         the shards",
        plural(got, "channel")
    )]
    Channels { expected: u32, got: u32 },
    /// The directory is not a data set.
    #[error(
        "{path} is not a data set: {problem}; make one with `trireme data convert`{}",
        index_advice(dir),
        path = line(dir.display()),
        problem = line(problem)
    )]
    NoDataset { dir: PathBuf, problem: String },
    /// `dataset.json` has a wrong or missing key.
    #[error(
        "{path}: {problem}; create it again with `trireme data convert` or `trireme data index`",
        path = line(path.display()),
        problem = line(problem)
    )]
    Manifest {
        /// The path of `dataset.json`.
        path: PathBuf,
        /// Names the key, and says what was expected and found.
        problem: String,
    },
    /// The data set has no split with this name.
    #[error("{dir} has no split `{name}`; it has {known}", dir = line(dir.display()), name = line(name), known = line(known))]
    UnknownSplit {
        /// The directory of the data set.
        dir: PathBuf,
        name: String,
        /// The quoted names of all splits, separated by commas.
        known: String,
    },
    #[error(
        "{index} is missing: the shard has no index; run `trireme data index {dir}`",
        index = line(index.display()),
        dir = line(dir.display())
    )]
    NoIndex {
        /// The expected path of the index.
        index: PathBuf,
        /// The directory of the data set.
        dir: PathBuf,
    },
    /// An index does not match its shard.
    #[error(
        "{index}: {problem}; run `trireme data index {dir}` to create it again",
        index = line(index.display()),
        problem = line(problem),
        dir = line(dir.display())
    )]
    Index {
        index: PathBuf,
        /// The directory of the data set.
        dir: PathBuf,
        /// Names the line, and says what was expected and found.
        problem: String,
    },
    /// A shard differs from its entry in `dataset.json`.
    #[error(
        "{path}: {what}: dataset.json says {expected}, found {got}; the shard was changed or cut \
         short: copy or convert it again, and check with `trireme data verify`",
        path = line(path.display())
    )]
    Shard {
        path: PathBuf,
        /// What differs: "bytes" or "records".
        what: &'static str,
        /// The number in `dataset.json`.
        expected: u64,
        /// The number that the shard has.
        got: u64,
    },
    #[error(
        "{path}, record {record} at byte {offset}: {fault}",
        path = line(path.display()),
        fault = line(fault)
    )]
    Record {
        path: PathBuf,
        /// The record's number within the shard, from 0.
        record: u64,
        /// Byte offset of the record in the shard.
        offset: u64,
        fault: Fault,
    },
    /// A sample id is not below the number of samples of the split.
    #[error("split `{split}` has {}, so there is no sample {id}", plural(len, "sample"))]
    NoSample {
        split: String,
        id: u64,
        /// Number of samples in the split.
        len: u64,
    },
    /// The list of transforms cannot be used.
    #[error("transform `{text}`: {problem}")]
    Transform {
        /// Position in the list, from 0.
        index: usize,
        /// The entry as the user wrote it.
        text: String,
        /// What is wrong and what to try.
        problem: String,
        /// True if the only problem is that the images have various sizes.
        is_about_sizes: bool,
    },
    /// The resulting images have various sizes.
    #[error(
        "the transforms turn images of {images} into images of various sizes, but a batch needs a single size; \
         begin the list with random_resized_crop(size) or inception_crop(size), or with resize(size) and then \
         center_crop(size) or random_crop(size)"
    )]
    VariousSizes {
        /// The images that the list receives.
        images: Images,
    },
    /// More shards are mapped at the same time than the SIGBUS handler has entries for.
    #[error(
        "{path}: {limit} shards are mapped already; use fewer and larger shards \
         (`trireme data reshard`)",
        path = line(path.display())
    )]
    TooManyShards {
        /// The shard that could not be mapped.
        path: PathBuf,
        /// Maximum number of mapped shards.
        limit: usize,
    },
    #[error("loader thread {thread} panicked: {message}; this is a bug in trireme, please report it")]
    Panic { thread: usize, message: String },
    /// A picture file cannot be used.
    #[error("picture {}: {}", line(path.display()), line(problem))]
    Picture { path: PathBuf, problem: String },
    /// The operating system did not start a new thread.
    #[error("cannot start a loader thread: {source}; use fewer threads, or raise `ulimit -u`")]
    Thread { source: io::Error },
    /// The priority of a loader thread cannot be lowered.
    #[error("cannot set loader threads to nice {nice}: {source}; expected 0 to 19")]
    Nice { nice: i32, source: io::Error },
    /// The consumer holds every slot of the ring and requests another batch.
    #[error("all {slots} batch slots are held by the consumer; drop a batch first, or use more slots")]
    SlotsHeld { slots: usize },
    /// `next` was called on a loader that had already reported an error.
    #[error("the loader has stopped because of an earlier error")]
    Stopped,
}

/// Formats untrusted text on a single line.
fn line(text: impl Display) -> String {
    printable(&text.to_string()).into_owned()
}

/// Returns the advice to index the TFRecords in a directory. Empty if there is no such directory.
fn index_advice(dir: &Path) -> String {
    match dir.is_dir() {
        true => format!(", or index existing TFRecords with `trireme data index {}`", line(dir.display())),
        false => String::new(),
    }
}

/// Formats a number of bytes for display.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        many if many >= 1e9 => format!("{:.1} GB", many / 1e9),
        some if some >= 1e5 => format!("{:.1} MB", some / 1e6),
        _ => format!("{bytes} bytes"),
    }
}

impl Error {
    /// Returns true if the error concerns a name that the user gave on the command line (a split or a transform).
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::UnknownSplit { .. } | Error::Transform { .. } | Error::VariousSizes { .. })
    }

    /// Returns true if a list of transforms cannot be used only because the images have various sizes.
    pub fn is_about_sizes(&self) -> bool {
        match self {
            Error::VariousSizes { .. } => true,
            Error::Transform { is_about_sizes, .. } => *is_about_sizes,
            _ => false,
        }
    }

    /// Returns a function for `map_err` that converts a system error to [`Error::Io`].
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Maximum number of directory entries that are compared with a missing name.
const NAMES: usize = 10_000;

/// Returns the system's error message with extra help. For a missing path, it names the missing directory and suggests
/// a similar name. If too many files are open, it states the limit. The text can end with a question: append
/// advice with [`base::text::with_advice`].
pub fn why(path: &Path, error: &io::Error) -> String {
    let cause = match error.kind() {
        _ if error.raw_os_error() == Some(libc::EMFILE) => open_files(),
        ErrorKind::NotFound => missing(path),
        ErrorKind::NotADirectory => {
            let file = path.ancestors().skip(1).find(|part| part.is_file());
            file.map_or_else(String::new, |file| {
                format!("; {} is a file, not a folder", printable(&file.to_string_lossy()))
            })
        }
        ErrorKind::IsADirectory => return "it is a folder, not a file".into(),
        _ => String::new(),
    };
    format!("{error}{cause}")
}

/// Returns advice for an error while writing a run's file.
pub fn write_advice(error: &io::Error) -> &'static str {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => {
            "free some space (`df -h`, `quota`) or choose another --out"
        }
        (ErrorKind::FileTooLarge, _) => "raise the limit of the file size (`ulimit -f`)",
        (ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, _) => {
            "correct its permissions or choose another --out"
        }
        (_, Some(libc::EIO | libc::ESTALE | libc::ENXIO | libc::ENODEV | libc::EREMOTEIO)) => {
            "the disk or the connection to it fails (`dmesg` may say more): choose another --out"
        }
        _ => "choose another --out",
    }
}

/// Returns advice for the case that this process cannot open more files.
fn open_files() -> String {
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    // Suggest twice the current limit, at least the usual 1024.
    let more = now.saturating_mul(2).max(1024).min(most);
    match more > now {
        true => format!("; raise the limit of open files from {now} first (`ulimit -n {more}`)"),
        false => format!(
            "; the limit of open files is {now}: ask an administrator to raise it, or use fewer shards, or fewer --jobs"
        ),
    }
}

/// Returns the directory of a path, or `.` for a bare file name.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Names the first part of the path that does not exist, and suggests a similar name in the same directory if there is
/// one.
fn missing(path: &Path) -> String {
    let parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    let Some(first) = parts.into_iter().rev().find(|part| part.symlink_metadata().is_err()) else {
        return String::new();
    };
    let folder = if first == path {
        String::new()
    } else {
        format!("; there is no folder {}", printable(&first.to_string_lossy()))
    };
    let meant = similar_entry(first)
        .map_or_else(String::new, |found| format!("; did you mean {}?", printable(&found.to_string_lossy())));
    format!("{folder}{meant}")
}

/// Returns the entry in the same directory with the most similar name.
fn similar_entry(path: &Path) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?;
    let entries = fs::read_dir(folder_of(path)).ok()?.flatten().take(NAMES);
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    nearest(wanted, &names).map(|name| path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    #[test]
    fn only_a_full_disk_gets_the_advice_to_free_space() {
        let advice = |code| write_advice(&io::Error::from_raw_os_error(code));
        assert!(advice(libc::ENOSPC).contains("free some space") && advice(libc::EDQUOT).contains("free some space"));
        for (code, word) in [(libc::EIO, "dmesg"), (libc::EFBIG, "ulimit -f"), (libc::EROFS, "permissions")] {
            assert!(advice(code).contains(word) && !advice(code).contains("space"), "{code}");
        }
    }

    #[test]
    fn why_names_the_missing_part_of_a_path() {
        let folder = std::env::temp_dir().join(format!("loaders-why-{}", std::process::id()));
        fs::create_dir_all(folder.join("photos")).unwrap();
        fs::write(folder.join("photos/kitten.png"), "").unwrap();
        let said = |name: &str| {
            let path = folder.join(name);
            why(&path, &fs::read(&path).unwrap_err())
        };
        let at = |name: &str| folder.join(name).display().to_string();
        assert_mentions(&said("photos/kiten.png"), &[&at("photos/kitten.png")]);
        assert!(said("photos/zebra").starts_with("No such file") && said("photos/zebra").ends_with("(os error 2)"));
        let (gone, meant) = (at("phots"), at("photos"));
        assert_mentions(&said("phots/a/b.png"), &[&gone, &meant]);
        let file = at("photos/kitten.png");
        assert_mentions(&said("photos/kitten.png/a"), &[&file, "not a folder"]);
        assert_mentions(&said("photos"), &["a folder", "not a file"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn too_many_open_files_say_which_limit_to_raise() {
        let text = why(Path::new("photos"), &io::Error::from_raw_os_error(libc::EMFILE));
        let limit = getrlimit(Resource::Nofile);
        assert_mentions(&text, &["os error 24", &limit.current.unwrap_or(u64::MAX).to_string()]);
        // True if the limit can be raised without an administrator.
        let may_rise = limit.maximum.is_none_or(|most| limit.current.is_some_and(|now| now < most));
        assert_eq!(text.contains("`ulimit -n "), may_rise, "{text}");
        assert_eq!(text.contains("administrator"), !may_rise, "{text}");
    }
}

//! The errors of reading and writing model files.

use std::io;
use std::path::{Path, PathBuf};

use loaders::why;

/// An error of reading or writing a model file. Each message names the file and what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {}", .path.display(), why(.path, .source))]
    Io {
        /// The attempted action: `read`, `write`, ...
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The disk or the user's quota is full.
    #[error(
        "no space left to write {} (at least {bytes} bytes): free some space (`df -h`, `quota`), or choose another \
         folder with --out. An existing file is unchanged", .path.display()
    )]
    NoSpace {
        path: PathBuf,
        /// Total size of all weights in bytes. The file is slightly larger.
        bytes: u64,
    },
    /// The file would exceed the largest file size that this process may write.
    #[error(
        "cannot write {} (at least {bytes} bytes): the file size limit is lower; raise it (`ulimit -f`). An existing \
         file is unchanged", .path.display()
    )]
    FileLimit {
        path: PathBuf,
        /// Total size of all weights in bytes. The file is slightly larger.
        bytes: u64,
    },
    /// The output folder cannot be created or written.
    #[error("cannot write to the folder {}: {}", .path.display(), folder_advice(.path, .source))]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot {action} in {}: {text}{}", .path.display(), advice(.text))]
    Hdf5 {
        /// The attempted action with the name of the object.
        action: String,
        path: PathBuf,
        /// The message of libhdf5.
        text: String,
    },
    /// The file is not a trireme model.
    #[error("{} is not a trireme model: {text}. Give the model.h5 that `trireme train` wrote", .path.display())]
    Foreign {
        path: PathBuf,
        /// Says what the file is instead, or which part is missing.
        text: String,
    },
    /// A model or another file was given instead of a checkpoint.
    #[error("{} is not a checkpoint: {text}", .path.display())]
    NotACheckpoint {
        path: PathBuf,
        /// The missing parts, and a suggestion.
        text: String,
    },
    /// The end of the file is missing.
    #[error(
        "{} is cut short: it has {got} bytes, but its header says {expected} plus a checksum. Copy it again, or use \
         another model from checkpoints/", .path.display()
    )]
    Truncated {
        path: PathBuf,
        /// Length in bytes according to the superblock.
        expected: u64,
        got: u64,
    },
    /// The file has all of its HDF5 data, but other bytes than the checksum at its end.
    #[error(
        "{} does not end with its checksum: its header says {expected} bytes plus a checksum of 16 bytes, and it has {got} bytes. Bytes \
         at its end were added or changed. Copy it again, or use another model from checkpoints/", .path.display()
    )]
    OtherEnd {
        path: PathBuf,
        /// Length in bytes according to the superblock.
        expected: u64,
        got: u64,
    },
    /// Another program wrote to the file, which drops the checksum at its end.
    #[error("{} was changed by another program after trireme wrote it: {text}. Use the original file", .path.display())]
    Unsealed {
        path: PathBuf,
        /// The parts that differ from what trireme wrote, or why they are unknown.
        text: String,
    },
    /// Another program rewrote the whole file in another HDF5 layout.
    #[error("{} was rewritten by another program: {source}", .path.display())]
    Rewritten {
        path: PathBuf,
        /// The first difference in the layout.
        source: Box<Error>,
    },
    /// An HDF5 structure that trireme does not write.
    #[error(
        "{}: {object}, byte {at}: {text}. trireme reads only the layout that it writes. If another program wrote or \
         changed the file, use the original; otherwise copy it again, or use another from checkpoints/", .path.display()
    )]
    Layout {
        path: PathBuf,
        /// The path of the group, attribute or array in the file.
        object: String,
        /// Offset in the file.
        at: u64,
        /// What is wrong, with the expected and actual value.
        text: String,
    },
    /// The file was written by a later version of trireme.
    #[error("{} has {kind} format {version}, but this trireme reads up to {newest}: use a newer trireme", .path.display())]
    Newer {
        path: PathBuf,
        /// The kind of file that the version belongs to: `model` or `checkpoint`.
        kind: &'static str,
        /// Version in the file.
        version: u64,
        /// The newest version that this program reads.
        newest: u64,
    },
    /// A checkpoint with a kind of layer that this program does not have. Its checksum is correct, so it is not damaged.
    #[error("{}: layer {layer} has the unknown kind {kind:?}: use a newer trireme", .path.display())]
    UnknownKind {
        path: PathBuf,
        layer: String,
        /// The text in the file.
        kind: String,
    },
    /// The checksum does not match: bits changed in transfer or on disk.
    #[error(
        "{} is damaged: its checksum should be {expected:08x}, but its bytes give {got:08x}. Copy it again, or use \
         another model from checkpoints/", .path.display()
    )]
    Damaged { path: PathBuf, expected: u32, got: u32 },
    /// A part of the file is missing or contradicts other parts.
    #[error("{}: {text}. The file is damaged or was changed by another program; copy it again, or train the model again", .path.display())]
    Content {
        path: PathBuf,
        /// What is wrong, with the expected and actual value.
        text: String,
    },
    /// A model that cannot be written to a file. This is a bug of the caller.
    #[error("layer {layer}: {text}")]
    Layer {
        layer: String,
        /// What is wrong, with the expected and actual value.
        text: String,
    },
}

/// Explains why a folder cannot be written, and what to try.
fn folder_advice(folder: &Path, source: &io::Error) -> String {
    match source.kind() {
        // If the path is a file, the system reports only that it exists.
        io::ErrorKind::AlreadyExists => "it is not a folder. Choose another with --out".into(),
        io::ErrorKind::NotADirectory => format!("{}. Choose another with --out", why(folder, source)),
        io::ErrorKind::PermissionDenied => format!("{source}. Choose another with --out, or fix its permissions"),
        _ => format!("{source}. Choose another with --out"),
    }
}

/// Returns advice for known messages of HDF5.
fn advice(text: &str) -> &'static str {
    if text.contains("lock") {
        return ". On a file system without locks set HDF5_USE_FILE_LOCKING=FALSE";
    }
    ""
}

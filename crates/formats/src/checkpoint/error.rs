//! What can go wrong with a model file.

use std::io;
use std::path::{Path, PathBuf};

use loaders::why;

/// An error of reading or writing a model file. Each text names the file and what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {}", .path.display(), why(.path, .source))]
    Io {
        /// What was tried: `read`, `write`, ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No space, or no quota, is left on the file system.
    #[error(
        "no space left to write {} ({bytes} bytes and more): free some (`df -h`, `quota`), or choose another place \
         with --out. What stood there before is untouched", .path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes of all weights; the file is a little longer.
        bytes: u64,
    },
    /// The file would exceed the largest file size that this process may write.
    #[error(
        "cannot write {} ({bytes} bytes and more): the limit of the file size is lower; raise it (`ulimit -f`). What stood there before is \
         untouched", .path.display()
    )]
    FileLimit {
        /// The file.
        path: PathBuf,
        /// Total size of all weights in bytes. The file is slightly larger.
        bytes: u64,
    },
    /// A folder for output that cannot be made or written.
    #[error("cannot write to the folder {}: {}", .path.display(), folder_advice(.path, .source))]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// HDF5 refused.
    #[error("cannot {action} in {}: {text}{}", .path.display(), advice(.text))]
    Hdf5 {
        /// What was tried, with the name of the object.
        action: String,
        /// The file.
        path: PathBuf,
        /// The library's words.
        text: String,
    },
    /// The file is something else.
    #[error("{} is no trireme model: {text}. Give the model.h5 that `trireme train` wrote", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// How it was recognised.
        text: String,
    },
    /// A model, or some other file, in place of a checkpoint.
    #[error("{} is no checkpoint: {text}", .path.display())]
    NoCheckpoint {
        /// The file.
        path: PathBuf,
        /// What it lacks, and what to do.
        text: String,
    },
    /// The end of the file is missing.
    #[error(
        "{} is cut short: it has {got} bytes, and by its own head {expected} and a checksum. Copy it again, or take another model from \
         checkpoints/", .path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Bytes that it should have.
        expected: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// Another program wrote into the file, which drops the checksum at its end.
    #[error("{} was written by another program since trireme wrote it: {text}. Take trireme's own file", .path.display())]
    Unsealed {
        /// The file.
        path: PathBuf,
        /// What is not as trireme wrote it.
        text: String,
    },
    /// Another program made the file anew, in another layout.
    #[error("{} was made anew by another program: {source}", .path.display())]
    Rewritten {
        /// The file.
        path: PathBuf,
        /// How its layout is another one.
        source: Box<Error>,
    },
    /// Bytes that trireme does not write.
    #[error(
        "{}: {object}, byte {at}: {text}. Only the layout that trireme writes is read: if another program wrote or changed the file, \
         take trireme's own, else copy it again or take another from checkpoints/", .path.display()
    )]
    Layout {
        /// The file.
        path: PathBuf,
        /// The path of the group, attribute or array in it.
        object: String,
        /// Offset of the bytes.
        at: u64,
        /// What is wrong, with expected and got.
        text: String,
    },
    /// The file was written by a later version.
    #[error("{} has model format {version}, this trireme reads up to {}: use a newer trireme", .path.display(), super::version::NEWEST)]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format's version.
        version: u64,
    },
    /// The checksum does not fit: bits changed on the way or on the disk.
    #[error(
        "{} is damaged: its checksum should be {expected:08x}, its bytes give {got:08x}. Copy it again, or take \
         another model from checkpoints/", .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The checksum stored.
        expected: u32,
        /// The checksum of the bytes.
        got: u32,
    },
    /// Something in the file is missing or contradicts the rest.
    #[error("{}: {text}. The file is damaged or was changed by another program; copy or train it again", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, with expected and got.
        text: String,
    },
    /// A model that cannot be written as a file: a fault of the caller.
    #[error("layer {layer}: {text}")]
    Layer {
        /// The layer's name.
        layer: String,
        /// What is wrong, with expected and got.
        text: String,
    },
}

/// Why a folder takes no files, and what to try.
fn folder_advice(folder: &Path, source: &io::Error) -> String {
    match source.kind() {
        // of a file where the folder was to be, the system says only that it exists
        io::ErrorKind::AlreadyExists => "it is no folder. Choose another with --out".into(),
        io::ErrorKind::NotADirectory => format!("{}. Choose another with --out", why(folder, source)),
        io::ErrorKind::PermissionDenied => format!("{source}. Choose another with --out, or mend its permissions"),
        _ => format!("{source}. Choose another with --out"),
    }
}

/// What to try, where the library's words tell.
fn advice(text: &str) -> &'static str {
    if text.contains("lock") {
        return ". On a file system without locks set HDF5_USE_FILE_LOCKING=FALSE";
    }
    ""
}

//! Why a file of weights is refused.

use std::io;
use std::path::{Path, PathBuf};

use loaders::{printable, why};

use crate::checkpoint;

/// A file of weights that cannot be used. Each text names the file and what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot read {}: {}", .path.display(), why(.path, .source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// None of the formats.
    #[error("{} begins as none of the formats that are read: {known}", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The formats.
        known: String,
    },
    /// Something in the file is not as its format says.
    #[error("{}: {text}. The file is damaged or cut short, or was made to harm; fetch or export it again", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, with expected and got.
        text: String,
    },
    /// Something in the file that is not read.
    #[error("{}: {text}", .path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it is, and what to try.
        text: String,
    },
    /// An ONNX file.
    #[error(transparent)]
    Onnx(#[from] super::onnx::Error),
    /// A file of trireme.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
}

/// What is wrong with the inside of a file, before the file is named.
#[derive(Debug)]
pub(super) enum Fault {
    /// The operating system refused.
    Io(io::Error),
    /// Not as the format says.
    Damaged(String),
    /// Not read: what it is, and what to try.
    Unsupported(String),
}

impl Fault {
    /// The error of a file.
    pub fn of(self, path: &Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Self::Io(source) => Error::Io { path, source },
            // the text may contain names from the file
            Self::Damaged(text) => Error::Damaged { path, text: printable(&text).into() },
            Self::Unsupported(text) => Error::Unsupported { path, text: printable(&text).into() },
        }
    }
}

/// What the format does not allow.
pub(super) fn damaged<T>(text: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Damaged(text.into()))
}

//! What a file of weights holds, in any format, and why it is refused.

use std::io;
use std::path::{Path, PathBuf};

use loaders::{printable, why};

use crate::checkpoint;
use crate::checkpoint::Tensor;

/// The tensors of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The file.
    pub path: PathBuf,
    /// Name of its format.
    pub format: &'static str,
    /// Names, shapes and values in C order, all as f32; each name once.
    pub tensors: Vec<Tensor>,
    /// What a file of trireme says beside; none for other programs'.
    pub model: Option<Model>,
    /// What another program did to a file of trireme, a line for people; none for a file as it was written.
    pub warning: Option<String>,
    /// Whether shapes and values are in Keras's order, which only the layers of a network can turn into PyTorch's.
    pub keras: bool,
}

/// What a file of trireme says of its model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the network.
    pub network: String,
    /// Class names, in order of their labels.
    pub classes: Vec<String>,
    /// Transforms from a decoded image to the input.
    pub preprocess: Vec<String>,
}

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

/// Reads the set of weights with a key.
pub type ReadPart = fn(&Path, &str) -> Result<Weights, Error>;

/// A format of files.
#[derive(Clone, Copy)]
pub struct Format {
    /// Its name, for the log.
    pub name: &'static str,
    /// What it is, for messages.
    pub about: &'static str,
    /// Whether a file that begins with these bytes is of it.
    pub recognises: fn(&[u8]) -> bool,
    /// Reads a file.
    pub read: fn(&Path) -> Result<Weights, Error>,
    /// Reads the set of weights with this key. `None` if files of this format have only one set.
    pub read_part: Option<ReadPart>,
}

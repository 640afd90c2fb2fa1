//! The weights that a file of any format holds, and the errors of reading it.

use std::io;
use std::path::{Path, PathBuf};

use base::text::printable;
use loaders::{LabelKind, why};

use crate::checkpoint;
use crate::checkpoint::{ModelFile, Tensor};

/// The tensors of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    pub path: PathBuf,
    pub format: &'static str,
    /// Names, shapes and values in C order, converted to f32. Each name occurs once.
    pub tensors: Vec<Tensor>,
    /// The model without its weights, if trireme wrote the file.
    pub model: Option<ModelFile>,
    /// A line for the user, for example if another program changed a file of trireme.
    pub warning: Option<String>,
    /// True if shapes and values are in Keras's order. Converting them to PyTorch's order needs the layers of the
    /// network.
    pub keras: bool,
    /// The model that trireme exported to this file of another format, if it did.
    pub exported: Option<ExportedModel>,
}

/// The description of a model in a file that trireme exported.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportedModel {
    /// The kind of labels. If labels are numbers, the last layer of the file computes them in the targets' units.
    pub labels: LabelKind,
    /// The model without its weights, or a message about the first text that is missing or invalid. The weights can be
    /// used without this description.
    pub model: Result<ModelFile, String>,
}

impl ExportedModel {
    /// Reads the description from the metadata of a file. `text` looks up a text by its name. Returns `None` if another
    /// program wrote the file.
    pub(super) fn from_metadata<'a>(text: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let model = ModelFile::from_metadata(&text).transpose()?;
        let is_there = |name: &str| text(&format!("{}{name}", ModelFile::METADATA_PREFIX)).is_some();
        Some(Self { labels: LabelKind::new(is_there("targets"), is_there("multi_label")), model })
    }

    /// Returns a warning for commands that use only the weights, if the description in the file `path` is damaged.
    pub fn warning(&self, path: &Path) -> Option<String> {
        let why = self.model.as_ref().err()?;
        let (path, why) = (path.display(), printable(why));
        Some(format!("warning: {path}: {why}. The weights are used anyway, but `trireme import` refuses this file"))
    }
}

impl Weights {
    /// Creates the weights of a file that another program wrote, without a warning.
    pub(super) fn new(path: &Path, format: &'static str, tensors: Vec<Tensor>) -> Self {
        Self { path: path.to_path_buf(), format, tensors, model: None, warning: None, keras: false, exported: None }
    }

    /// Returns the model without its weights, if trireme wrote or exported the file.
    pub fn description(&self) -> Option<&ModelFile> {
        let exported = self.exported.as_ref().and_then(|exported| exported.model.as_ref().ok());
        self.model.as_ref().or(exported)
    }

    /// Returns an error if trireme exported the file and the description of the model is damaged.
    pub fn check_description(&self) -> Result<(), Error> {
        match self.exported.as_ref().map(|exported| &exported.model) {
            Some(Err(why)) => Err(Fault::Damaged(why.clone()).of(&self.path)),
            _ => Ok(()),
        }
    }
}

/// A weight file that cannot be used. Each message names the file and says what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {}", .path.display(), why(.path, .source))]
    Io { path: PathBuf, source: io::Error },
    /// The first bytes match no format.
    #[error("{} has an unknown format; supported formats: {known}", .path.display())]
    Unknown {
        path: PathBuf,
        /// The supported formats.
        known: String,
    },
    /// The file violates the rules of its format.
    #[error("{}: {text}. The file is damaged, truncated or malicious. Download or export it again", .path.display())]
    Damaged {
        path: PathBuf,
        /// What is wrong, with the expected and the found value.
        text: String,
    },
    /// The file has a part that trireme does not support.
    #[error("{}: {text}", .path.display())]
    Unsupported {
        path: PathBuf,
        /// The unsupported part, and what to try.
        text: String,
    },
    #[error(transparent)]
    Onnx(#[from] super::onnx::Error),
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
}

/// An error inside a file whose path is not known yet.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    /// A violation of the format's rules.
    Damaged(String),
    /// An unsupported part, and what to try.
    Unsupported(String),
}

impl Fault {
    /// Converts the fault to the error for the file at this path.
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

pub(super) fn damaged<T>(text: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Damaged(text.into()))
}

#[derive(Clone, Copy)]
pub struct Format {
    /// Name for the log.
    pub name: &'static str,
    /// Description for messages.
    pub about: &'static str,
    /// Returns true if a file that begins with these bytes has this format.
    pub recognises: fn(&[u8]) -> bool,
    /// Reads a file. With a key, reads the set of weights with this key.
    pub read: fn(&Path, Option<&str>) -> Result<Weights, Error>,
    /// True if files of this format may have more than one set of weights.
    pub has_keys: bool,
}

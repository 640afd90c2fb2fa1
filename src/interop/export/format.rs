//! The formats, and what is chosen of an export.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::number::Number;

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An ONNX graph.
    Onnx,
    /// Tensors with PyTorch's names, and the module as a Python file.
    Safetensors,
    /// A model of Keras 2 and 3.
    Keras,
}

/// What is chosen of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The format.
    pub format: Format,
    /// Weights are stored in 16 bits.
    pub half: bool,
    /// Batch norms become part of the convolutions before them.
    pub fold: bool,
    /// The graph takes bytes of pixels in place of normalised values; of ONNX alone.
    pub preprocess: bool,
    /// Files that are there are replaced.
    pub force: bool,
}

impl Settings {
    /// Type of the weights.
    pub(super) fn number(&self) -> Number {
        if self.half { Number::F16 } else { Number::F32 }
    }
}

impl Format {
    /// All formats, for help and messages.
    pub const ALL: [Self; 3] = [Self::Onnx, Self::Safetensors, Self::Keras];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::Safetensors => "safetensors",
            Self::Keras => "keras",
        }
    }

    /// One line of help.
    pub fn about(self) -> &'static str {
        match self {
            Self::Onnx => "An ONNX graph of opset 17 for any number of images",
            Self::Safetensors => {
                "Weights with PyTorch's names, and a Python file beside that builds the module and loads them"
            }
            Self::Keras => "A model of Keras's own layers, FILE.keras or FILE.h5, for Keras 2 and 3",
        }
    }

    /// The files that are written.
    ///
    /// # Errors
    /// [`Error::Name`] where other programs know a format by the end of its name and `out` ends otherwise.
    pub(super) fn files(self, out: &Path) -> Result<Vec<PathBuf>, Error> {
        let refuse = |why: &str| Err(Error::Name { path: out.to_path_buf(), why: why.into() });
        let ending = out.extension().and_then(OsStr::to_str).unwrap_or("");
        match self {
            Self::Safetensors if ending == "py" => {
                refuse("that is the name of the Python file; write -o FILE.safetensors")
            }
            Self::Safetensors => Ok(vec![out.to_path_buf(), out.with_extension("py")]),
            Self::Keras if out.to_string_lossy().ends_with(".weights.h5") => {
                refuse("Keras reads files of this name as weights alone; write -o FILE.keras or FILE.h5")
            }
            Self::Keras if !["keras", "h5"].contains(&ending) => {
                refuse("Keras knows its files by their names; write -o FILE.keras or FILE.h5")
            }
            Self::Onnx | Self::Keras => Ok(vec![out.to_path_buf()]),
        }
    }
}

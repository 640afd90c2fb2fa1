//! The formats, and what is chosen of an export.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use loaders::overwrite::Content;

use super::error::Error;
use super::number::Number;

/// A graph begins with its version, field 1 of its message.
const ONNX: Content = Content { name: "an ONNX file", begins: |head| head.starts_with(&[0x08]) };
/// The length of the header, and the header.
const SAFETENSORS: Content = Content { name: "a safetensors file", begins: |head| head.get(8) == Some(&b'{') };
/// A module begins with what is said of it.
const PYTHON: Content = Content { name: "a module of trireme", begins: |head| head.starts_with(b"\"\"\"") };
/// An archive.
const KERAS: Content = Content { name: "a .keras file", begins: |head| head.starts_with(b"PK") };
/// A model in HDF5.
pub const HDF5: Content = Content { name: "a model in HDF5", begins: |head| head.starts_with(b"\x89HDF\r\n\x1a\n") };

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

    /// The files that are written, and what each holds.
    ///
    /// # Errors
    /// [`Error::Name`] where other programs know a format by the end of its name and `out` ends otherwise.
    pub(super) fn files(self, out: &Path) -> Result<Vec<(PathBuf, &'static Content)>, Error> {
        let refuse = |why: &str| Err(Error::Name { path: out.to_path_buf(), why: why.into() });
        let ending = out.extension().and_then(OsStr::to_str).unwrap_or("");
        match self {
            Self::Safetensors if ending == "py" => {
                refuse("that is the name of the Python file; write -o FILE.safetensors")
            }
            Self::Safetensors => Ok(vec![(out.to_path_buf(), &SAFETENSORS), (out.with_extension("py"), &PYTHON)]),
            Self::Keras if out.to_string_lossy().ends_with(".weights.h5") => {
                refuse("Keras reads files of this name as weights alone; write -o FILE.keras or FILE.h5")
            }
            Self::Keras if !["keras", "h5"].contains(&ending) => {
                refuse("Keras knows its files by their names; write -o FILE.keras or FILE.h5")
            }
            Self::Onnx => Ok(vec![(out.to_path_buf(), &ONNX)]),
            Self::Keras => Ok(vec![(out.to_path_buf(), if ending == "h5" { &HDF5 } else { &KERAS })]),
        }
    }
}

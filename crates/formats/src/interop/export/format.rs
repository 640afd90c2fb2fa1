//! The formats of exported files, the settings of an export, and its errors.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use half::f16;
use loaders::overwrite::Content;
use loaders::why;

use crate::checkpoint;

/// An ONNX file begins with the protobuf tag of field 1, the version.
const ONNX: Content = Content { name: "an ONNX file", begins: |head| head.starts_with(&[0x08]) };
/// A safetensors file begins with the length of its JSON header in 8 bytes.
const SAFETENSORS: Content = Content { name: "a safetensors file", begins: |head| head.get(8) == Some(&b'{') };
/// The exported Python module begins with a docstring.
const PYTHON: Content =
    Content { name: "a Python file that trireme wrote", begins: |head| head.starts_with(b"\"\"\"") };
const KERAS: Content = Content { name: "a .keras file", begins: |head| head.starts_with(b"PK") };
pub const HDF5: Content = Content { name: "an HDF5 file", begins: |head| head.starts_with(b"\x89HDF\r\n\x1a\n") };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Onnx,
    /// Tensors with PyTorch's names, and a Python file with the module.
    Safetensors,
    /// A model for Keras 2 and 3.
    Keras,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub format: Format,
    /// True if weights are stored in 16 bits.
    pub half: bool,
    /// True if batch norms are merged into the layers before them.
    pub fold: bool,
    /// True if the graph reads stored pixel values instead of normalised values. Only for ONNX.
    pub preprocess: bool,
    pub force: bool,
}

impl Settings {
    /// Returns the type of stored weights.
    pub(super) fn number(&self) -> Number {
        if self.half { Number::F16 } else { Number::F32 }
    }
}

impl Format {
    /// Returns the format's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::Safetensors => "safetensors",
            Self::Keras => "keras",
        }
    }

    /// Returns a line for the help text.
    pub fn about(self) -> &'static str {
        match self {
            Self::Onnx => "An ONNX graph of opset 17 for any number of images",
            Self::Safetensors => {
                "Weights with PyTorch's names, and a Python file that builds the module and loads them"
            }
            Self::Keras => "A model of Keras's own layers, FILE.keras or FILE.h5, for Keras 2 and 3",
        }
    }

    /// Returns the files that an export to `out` writes, each with its kind of content.
    ///
    /// # Errors
    /// Returns [`Error::Name`] if other programs would not recognise the file by the ending of its name.
    pub(super) fn files(self, out: &Path) -> Result<Vec<(PathBuf, &'static Content)>, Error> {
        let refuse = |why: &str| Err(Error::Name { path: out.to_path_buf(), why: why.into() });
        let ending = out.extension().and_then(OsStr::to_str).unwrap_or("");
        match self {
            Self::Safetensors if ending == "py" => {
                refuse("this is the name of the Python file. Use -o FILE.safetensors")
            }
            Self::Safetensors => Ok(vec![(out.to_path_buf(), &SAFETENSORS), (out.with_extension("py"), &PYTHON)]),
            Self::Keras if out.to_string_lossy().ends_with(".weights.h5") => {
                refuse("Keras expects only weights in a file with this name. Use -o FILE.keras or FILE.h5")
            }
            Self::Keras if !["keras", "h5"].contains(&ending) => {
                refuse("Keras recognises its files by their names. Use -o FILE.keras or FILE.h5")
            }
            Self::Onnx => Ok(vec![(out.to_path_buf(), &ONNX)]),
            Self::Keras => Ok(vec![(out.to_path_buf(), if ending == "h5" { &HDF5 } else { &KERAS })]),
        }
    }
}

/// An error of an export. Each message says what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The format cannot express a layer.
    #[error("layer {layer} ({kind}) cannot be exported to {format}: {why}")]
    Op {
        layer: String,
        kind: &'static str,
        format: &'static str,
        /// The reason, and what to try.
        why: String,
    },
    /// The layers do not fit together, or the weights do not belong to the network.
    #[error("network {network}: {why}")]
    Network { network: String, why: String },
    /// The output file already exists.
    #[error("{} already exists. Choose another name with -o, or replace it with --force", .path.display())]
    Exists { path: PathBuf },
    /// Writing would destroy another file, or the directory is not writable.
    #[error("{0}")]
    Output(String),
    /// The format does not allow the file's name.
    #[error("{}: {why}", .path.display())]
    Name {
        path: PathBuf,
        /// What is wrong with the name, and the expected one.
        why: String,
    },
    /// The file would exceed the format's limit.
    #[error("{}: the file would have {bytes} bytes, but ONNX files have at most {most}. Try --half, or --to safetensors", .path.display())]
    TooLarge {
        path: PathBuf,
        bytes: u64,
        /// Largest size in bytes.
        most: u64,
    },
    /// A weight is too large for 16 bits.
    #[error("tensor {tensor} has the value {value}, which is too large for 16 bits (at most 65504). Leave --half out")]
    Half {
        /// Name of the tensor, such as `fc.weight`.
        tensor: String,
        /// The first value that is too large.
        value: f32,
    },
    #[error("cannot write {}: {}", .path.display(), why(.path, .source))]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
}

impl Error {
    /// Returns true if the command line is wrong, not the model or the disk.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Exists { .. } | Error::Output(_) | Error::Name { .. })
    }
}

/// The type of stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    F32,
    /// Rounded to the nearest value.
    F16,
}

impl Number {
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// Encodes the values as little-endian bytes.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        }
    }
}

//! The formats of exported files, the settings of an export, and its errors.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use half::f16;
use loaders::overwrite::Content;
use loaders::why;

use crate::checkpoint;

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

/// An error of exporting. Each text names what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A layer that the format cannot express.
    #[error("layer {layer} ({kind}) cannot be exported to {format}: {why}")]
    Op {
        /// The layer.
        layer: String,
        /// Kind of its op.
        kind: &'static str,
        /// The format.
        format: &'static str,
        /// What is missing, and what to try.
        why: String,
    },
    /// A network that does not fit together, or weights that are not its own.
    #[error("network {network}: {why}")]
    Network {
        /// The network.
        network: String,
        /// What is wrong.
        why: String,
    },
    /// A file of that name is there.
    #[error("{} is there already; choose another name with -o, or replace it with --force", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file that would be lost, or a place where none can be written.
    #[error("{0}")]
    Output(String),
    /// A name that the format cannot have.
    #[error("{}: {why}", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// What is expected.
        why: String,
    },
    /// More than the format can hold.
    #[error("{}: {bytes} bytes are more than the {most} that an ONNX file may have; try --half, or --to safetensors", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that it would have.
        bytes: u64,
        /// Bytes that it may have.
        most: u64,
    },
    /// A weight beyond what 16 bits hold.
    #[error("tensor {tensor} has the value {value}, and 16 bits hold no more than 65504; leave --half out")]
    Half {
        /// The tensor, as `fc.weight`.
        tensor: String,
        /// The first such value.
        value: f32,
    },
    /// The operating system refused.
    #[error("cannot write {}: {}", .path.display(), why(.path, .source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// HDF5 refused.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
}

impl Error {
    /// Whether the request is at fault, not the model or the disk.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Exists { .. } | Error::Output(_) | Error::Name { .. })
    }
}

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// As they were trained.
    F32,
    /// Rounded to the nearest, half the size.
    F16,
}

impl Number {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// Little-endian values.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        }
    }
}

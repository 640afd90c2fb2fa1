//! What a file of weights holds, in any format, and why it is refused.

use std::io;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
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

/// A type of values, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

impl Number {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Decodes the first value in these bytes. Returns 0 if there are too few bytes.
    pub fn value(self, bytes: &[u8]) -> f32 {
        self.values(bytes.get(..self.bytes()).unwrap_or_default()).first().copied().unwrap_or(0.0)
    }

    /// All values that these bytes hold, rounded to f32; what is left of the last value is not looked at.
    pub fn values(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
            Self::F32 => each(bytes, f32::from_le_bytes),
            Self::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
            Self::Bf16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            Self::I64 => each(bytes, |b| i64::from_le_bytes(b) as f32),
            Self::I32 => each(bytes, |b| i32::from_le_bytes(b) as f32),
            Self::I16 => each(bytes, |b| f32::from(i16::from_le_bytes(b))),
            Self::I8 => each(bytes, |b| f32::from(i8::from_le_bytes(b))),
            Self::U64 => each(bytes, |b| u64::from_le_bytes(b) as f32),
            Self::U32 => each(bytes, |b| u32::from_le_bytes(b) as f32),
            Self::U16 => each(bytes, |b| f32::from(u16::from_le_bytes(b))),
            Self::U8 => each(bytes, |b| f32::from(u8::from_le_bytes(b))),
            Self::Bool => each(bytes, |[b]| f32::from(u8::from(b != 0))),
        }
    }
}

fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|one| value(*one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_becomes_f32() {
        assert_eq!(Number::F64.values(&1.5f64.to_le_bytes()), [1.5]);
        assert_eq!(Number::F64.values(&1e300f64.to_le_bytes()), [f32::INFINITY]);
        assert_eq!(Number::F16.values(&[0, 0x3e, 0, 0xbc]), [1.5, -1.0]);
        assert_eq!(Number::Bf16.values(&[0xc0, 0x3f]), [1.5]);
        assert_eq!(Number::I64.values(&(-3i64).to_le_bytes()), [-3.0]);
        assert_eq!(Number::I16.values(&(-3i16).to_le_bytes()), [-3.0]);
        assert_eq!(Number::U8.values(&[255, 0]), [255.0, 0.0]);
        assert_eq!(Number::I8.values(&[255]), [-1.0]);
        assert_eq!(Number::Bool.values(&[0, 1, 7]), [0.0, 1.0, 1.0]);
    }
}

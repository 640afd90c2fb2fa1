//! Why a network is not exported.

use std::io;
use std::path::PathBuf;

use loaders::why;

use crate::checkpoint;

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

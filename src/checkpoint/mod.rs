//! Files that outlive a process: `model.h5` and checkpoints, in HDF5.
//!
//! - [`mod@model_file`]: what a model file holds, and its layout on disk;
//! - [`mod@state_file`]: the same of a checkpoint, from which a run goes on;
//! - [`mod@keras`]: between PyTorch's names and layouts (in memory) and Keras's (on disk);
//! - `h5`: groups, attributes and arrays of HDF5, the only file that names the library;
//! - `seal`: the checksum behind the HDF5 data; `atomic`: written whole or not at all.
//!
//! Not here: when to write, and which tensors a network has.

mod atomic;
pub mod error;
mod h5;
pub mod keras;
mod layer_kind;
pub mod model_file;
mod seal;
pub mod state_file;

pub use atomic::{free_space, writable, write_text};
pub use error::Error;
pub use keras::Tensor;
pub use layer_kind::LayerKind;
pub use model_file::{LayerWeights, ModelFile};
pub use state_file::{Best, Progress, Scale, StateFile, Sums};

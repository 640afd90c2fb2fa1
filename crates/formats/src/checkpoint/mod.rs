//! Files that outlive a process: `model.h5` and checkpoints, in HDF5.
//!
//! - `model`: a trained network; [`mod@model_file`]: the layout of model files;
//! - [`mod@state_file`]: the same of a checkpoint, from which a run goes on;
//! - [`mod@keras`]: between PyTorch's names and layouts (in memory) and Keras's (on disk);
//! - `h5`: writes groups, attributes and arrays of HDF5; [`foreign`]: rewrites what another program made, in a process of its own; no
//!   other files name the library;
//! - [`read_weights`]: what that process made of a file of Keras, and what such a file says of its weights;
//! - `reader`: reads them, without the library;
//! - [`KerasFile`]: for Keras alone; [`Described`]: what a model file says to other programs;
//! - `checksum`: the integrity check behind the HDF5 data; `seal`: that of each part, which another program's edit does not drop;
//! - `memory`: what rules over scores keep in a checkpoint, and numbers between ranks;
//! - `atomic`: written whole or not at all.
//!
//! Not here: when to write, and which tensors a network has.

mod atomic;
mod checksum;
pub mod error;
pub mod foreign;
mod h5;
pub mod keras;
mod keras_file;
mod keras_weights;
mod memory;
mod model;
pub mod model_file;
mod reader;
mod seal;
pub mod state_file;
mod version;

pub use atomic::{free_space, writable, write_text};
pub use error::Error;
pub use foreign::{rewrite, rewrite_weights};
pub use h5::library;
pub use keras::{LayerKind, Tensor};
pub use keras_file::{Described, KerasFile, KerasLayer};
pub use keras_weights::{KerasWeights, read_weights};
pub use memory::{Memory, Plateaued, Watched};
pub use model::{LayerWeights, ModelFile};
pub use model_file::Opened;
pub use state_file::{Best, LabelScores, Progress, Scale, StateFile, Sums};

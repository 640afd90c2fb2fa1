//! Model files (`model.h5`) and checkpoints, in HDF5.
//!
//! - `model`: a trained network; [`mod@model_file`]: the layout of model files
//! - [`mod@state_file`]: the layout of checkpoints, from which a run resumes, with the state of rules that depend on
//!   scores, such as `[stop]`
//! - [`mod@keras`]: conversion between the names and layouts of PyTorch (in memory) and of Keras (in model.h5)
//! - `h5`: writes groups, attributes and arrays; [`foreign`]: rewrites files of other programs in a child process. Only
//!   these two use libhdf5
//! - [`read_weights`]: reads what the child process extracted from a Keras file
//! - `reader`: reads files that trireme wrote, without libhdf5
//! - [`KerasFile`]: files that only Keras reads; [`Described`]: information about a network for other programs
//! - `checksum`: a checksum after the HDF5 data; `seal`: checksums of the parts, which remain if another program edits
//!   the file
//! - `atomic`: atomic replacement of files
//!
//! Other code decides when to write files, and which tensors a network has.

mod atomic;
mod checksum;
pub mod error;
pub mod foreign;
mod h5;
pub mod keras;
mod keras_file;
mod keras_weights;
mod model;
pub mod model_file;
mod reader;
mod seal;
pub mod state_file;

pub use atomic::{check_writable, free_space, write_text};
pub use error::Error;
pub use foreign::{rewrite, rewrite_weights};
pub use h5::library;
pub use keras::{LayerKind, Tensor};
pub use keras_file::{Described, KerasFile, KerasLayer};
pub use keras_weights::{KerasWeights, read_weights};
pub use model::{LayerWeights, ModelFile};
pub use model_file::Opened;
pub use state_file::{Best, LabelScores, NumberScores, Progress, RuleStates, StateFile, StopState, Sums};

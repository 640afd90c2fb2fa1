//! Imports ONNX files: turns a graph into a network with weights that can be trained further.
//!
//! - [`read`] and `survey`: read a file, convert it node by node, and reject cycles. `graph`, `tensor`, `message`: the
//!   content of the file.
//! - `build`: the network under construction and the values of the graph. `operators`, and `interop/ops` for layers:
//!   convert one operator each. `value`: the values. `windows`, `channels`, `attention`, `scores`: shared
//!   parts of these. `axes`: tensors with dimensions that the graph splits and reorders. `places`: positions that the graph
//!   moves or selects. `terms`: biases, masks and factors in attention.
//! - `fold`: constant folding.
//! - `function`: activations that exporters write as several nodes. `fuse`: merges layers. `names`: derives PyTorch's
//!   module paths.
//!
//! A file may come from an untrusted source. Lengths are checked against the file before memory is allocated, and
//! errors about unsupported parts name the node. External data is not supported.

pub(super) mod attention;
pub(super) mod axes;
pub(super) mod build;
pub(super) mod channels;
mod fold;
pub(super) mod function;
mod fuse;
pub(super) mod graph;
mod message;
mod names;
pub(super) mod operators;
pub(super) mod places;
pub(super) mod scores;
mod survey;
pub(super) mod tensor;
mod terms;
#[cfg(test)]
mod tests;
mod value;
pub(super) mod windows;

pub use survey::{Error, Network, Survey, of_bytes, read};

/// Name of the format in [`Weights`](super::Weights).
pub const FORMAT_NAME: &str = "ONNX";

//! ONNX files in: a graph as a network with its weights, ready to be trained on.
//!
//! - [`read`] and `survey`: a file, looked at node by node, and cycles in it; `graph`, `tensor`, `message`: the file as it stands;
//! - `build`: the network under construction, and what a name in the graph stands for; `ops`: what each operator becomes, one family a
//!   file; `windows`, `channels`: what several families share;
//! - `fold`: constant folding;
//! - `function`: activations that exporters write as several nodes; `fuse`: layers that do the work of several; `names`: PyTorch's paths.
//!
//! A file may come from anywhere: lengths are checked against the file before memory is taken, and what is not understood is refused by the
//! name of its node. External data is not read.

pub(super) mod build;
pub(super) mod channels;
mod fold;
pub(super) mod function;
mod fuse;
pub(super) mod graph;
mod message;
mod names;
pub(super) mod operators;
mod survey;
pub(super) mod tensor;
#[cfg(test)]
mod tests;
pub(super) mod windows;

pub use survey::{Error, Network, Survey, of_bytes, read};

/// The name of the format in [`Weights`](super::Weights).
pub const FORMAT_NAME: &str = "ONNX";

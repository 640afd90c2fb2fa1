//! ONNX files in: a graph as a network with its weights, ready to be trained on.
//!
//! - [`read`]: a file, looked at node by node; `weights`: its weights alone; `wire`, `graph`, `tensor`: the file as it stands;
//! - `order`: cycles;
//! - `build`: the network under construction; `value`: what a name in the graph stands for; `readers`: who reads it; `ops`: what each
//!   operator becomes, one family a file; `windows`, `channels`: what several families share; `handler`: their form; `moments`: layer
//!   normalisation as its formula; `cast`: other types of numbers;
//! - `fold`: constant folding;
//! - `function`: activations that exporters write as several nodes; `fuse`: layers that do the work of several; `names`: PyTorch's paths.
//!
//! A file may come from anywhere: lengths are checked against the file before memory is taken, and what is not understood is refused by the
//! name of its node. External data is not read.

mod build;
mod cast;
mod channels;
pub mod error;
mod fold;
mod function;
mod fuse;
mod graph;
mod handler;
mod moments;
mod names;
mod ops;
mod order;
mod readers;
mod survey;
mod tensor;
#[cfg(test)]
mod tests;
mod value;
mod weights;
mod windows;
mod wire;

pub use error::Error;
pub use survey::{Network, Survey, of_bytes, read};
pub(super) use weights::FORMAT;

/// The name of the format in [`super::Weights`].
pub const FORMAT_NAME: &str = FORMAT.name;

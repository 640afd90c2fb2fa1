//! Weights and networks of other programs, in and out.
//!
//! - [`export`]: a trained network as a file of another program;
//! - [`onnx`]: an ONNX graph as a network with its weights; `number`: types of values in files.

pub mod export;
mod number;
pub mod onnx;

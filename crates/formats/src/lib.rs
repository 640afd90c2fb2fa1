//! Model files. [`checkpoint`] reads and writes `model.h5` and checkpoints (HDF5). [`interop`] reads and writes files
//! in the formats of other programs: safetensors, PyTorch, Keras, ONNX. [`arrays`] reads arrays of images from HDF5
//! files.

pub mod arrays;
pub mod checkpoint;
pub mod interop;
#[cfg(test)]
mod temporary;

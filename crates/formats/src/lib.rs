//! Model files. [`checkpoint`] reads and writes `model.h5` and checkpoints (HDF5). [`interop`] reads and writes files of other programs:
//! safetensors, PyTorch, Keras, ONNX.

pub mod checkpoint;
pub mod interop;

//! Each op in files of other programs, one file per op: ONNX in and out, PyTorch's code, Keras's layers.
//!
//! The files and their names are those of `net::for_each_op!`, so an op without a file does not compile. Operators of ONNX that are no
//! layer of ours, such as reshapes, are in `interop/onnx/operators`. Mappings destructure attributes without `..`, so that a new attribute
//! does not compile until each format handles it.

use net::{Op, for_each_op};

use super::export::keras::Layers;
use super::export::network::{Layer, Padded, Windows, windows};
use super::export::onnx::{Attribute, LayerWriter};
use super::export::torch::{Code, over_channels, pair, with_relu};
use super::export::trained::Values;
use super::onnx::build::Operator;

/// How files of other programs have one op.
pub(crate) trait OpMapping {
    /// Operators of ONNX that become this op.
    fn onnx_operators() -> &'static [Operator]
    where
        Self: Sized,
    {
        &[]
    }

    /// Adds the op's nodes to an ONNX graph and returns the name of its output. The error says why ONNX has no form for it.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String>;

    /// Returns the code of a layer whose module is at `path`, with its inputs in the variables `v`. The error says why PyTorch has no form
    /// for it.
    fn to_torch(&self, layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String>;

    /// Returns the shape that PyTorch's module has for a tensor, which may differ from ours by dimensions of 1.
    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        tensor.shape.to_vec()
    }

    /// Adds the op's layers to a Keras model and returns the one that makes its output. The error says why Keras has no form for it.
    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String>;

    /// Returns true if the op reads vectors of two dimensions, not images of four. `x` says which inputs are vectors. By default, images
    /// next to a vector have one pixel and are flattened, because all inputs have the same height and width.
    fn reads_flat(&self, x: &[bool]) -> bool {
        x.contains(&true)
    }

    /// Returns what is known of the signs of the output's values.
    fn sign(&self) -> Sign {
        Sign::Any
    }
}

/// Signs of the values of a tensor.
pub(crate) enum Sign {
    /// Values may be negative.
    Any,
    /// No value is below zero.
    NonNegative,
    /// No value is below zero if none is in the inputs.
    OfInputs,
}

impl Sign {
    fn non_negative_if(condition: bool) -> Self {
        if condition { Self::NonNegative } else { Self::Any }
    }
}

macro_rules! mappings {
    ($($file:ident $name:ident,)*) => {
        $(pub(crate) mod $file;)*

        /// Returns the mapping of an op.
        pub(crate) fn mapping(op: &Op) -> &dyn OpMapping {
            match op { $(Op::$name(op) => op,)* }
        }

        /// Returns the operators of ONNX that become layers.
        pub(crate) fn onnx_operators() -> impl Iterator<Item = &'static Operator> {
            [$(net::$name::onnx_operators(),)*].into_iter().flatten()
        }
    };
}
for_each_op!(mappings);

//! How each op is written in the formats of other programs, one file per op: ONNX import and export, PyTorch code,
//! Keras layers.
//!
//! The files and their names come from `net::for_each_op!`, so an op without a file does not compile. ONNX operators
//! that are not layers of trireme, such as reshapes, are in `interop/onnx/operators`. Mappings destructure attributes
//! without `..`, so that a new attribute does not compile until each format handles it.

use net::{Op, for_each_op};

use super::export::keras::layers::Layers;
use super::export::network::{Layer, Padded, Windows, windows};
use super::export::onnx::{graph::Attribute, layer::LayerWriter};
use super::export::torch::code::{Code, over_channels, pair, parameter, with_relu};
use super::export::trained::Values;
use super::onnx::build::Operator;

/// How one op is written in each format.
pub(crate) trait OpMapping {
    /// Returns the ONNX operators that are imported as this op.
    fn onnx_operators() -> &'static [Operator]
    where
        Self: Sized,
    {
        &[]
    }

    /// Adds the op's nodes to an ONNX graph and returns the name of its output. Fails with a reason if ONNX cannot
    /// express the op.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String>;

    /// Returns the code of a layer. Its module is at `path`, and its inputs are in the variables `v`. Fails with a
    /// reason if PyTorch cannot express the op.
    fn to_torch(&self, layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String>;

    /// Returns the shape of a tensor in PyTorch's module. It may differ from trireme's shape by dimensions of 1.
    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        tensor.shape.to_vec()
    }

    /// Adds the op's layers to a Keras model and returns the index of the layer with its output. Fails with a reason if
    /// Keras cannot express the op.
    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String>;

    /// Returns true if the op reads its inputs as vectors (two dimensions), not as images (four dimensions). `x` says
    /// which inputs are vectors. By default, one vector is enough: all inputs have the same height and width, so the
    /// images have one pixel and can be flattened.
    fn reads_flat(&self, x: &[bool]) -> bool {
        x.contains(&true)
    }

    /// Returns true if no value of the output is negative. `x` says which inputs have no negative values.
    fn is_non_negative(&self, _x: &[bool]) -> bool {
        false
    }
}

/// The reason why layers on sequences are not exported to Keras.
const NO_SEQUENCES: &str =
    "Keras's layers for sequences have other weights than this layer. Use --to onnx or safetensors";

/// See [`OpMapping::is_non_negative`].
pub(crate) fn is_non_negative(op: &Op, x: &[bool]) -> bool {
    mapping(op).is_non_negative(x)
}

macro_rules! mappings {
    ($($file:ident $name:ident,)*) => {
        $(pub(crate) mod $file;)*

        pub(crate) fn mapping(op: &Op) -> &dyn OpMapping {
            match op { $(Op::$name(op) => op,)* }
        }

        /// Returns the ONNX operators that are imported as layers.
        pub(crate) fn onnx_operators() -> impl Iterator<Item = &'static Operator> {
            [$(net::$name::onnx_operators(),)*].into_iter().flatten()
        }
    };
}
for_each_op!(mappings);

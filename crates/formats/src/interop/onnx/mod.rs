//! ONNX files in: a graph as a network with its weights, ready to be trained on.
//!
//! - [`read`] and `survey`: a file, looked at node by node, and cycles in it; `graph`, `tensor`: the file as it stands;
//! - `build`: the network under construction, and what a name in the graph stands for; `ops`: what each operator becomes, one family a
//!   file; `windows`, `channels`: what several families share;
//! - `fold`: constant folding;
//! - `function`: activations that exporters write as several nodes; `fuse`: layers that do the work of several; `names`: PyTorch's paths.
//!
//! A file may come from anywhere: lengths are checked against the file before memory is taken, and what is not understood is refused by the
//! name of its node. External data is not read.

mod build;
mod channels;
mod fold;
mod function;
mod fuse;
mod graph;
mod names;
mod ops;
mod survey;
mod tensor;
#[cfg(test)]
mod tests;
mod windows;

pub use survey::{Error, Network, Survey, of_bytes, read};

use std::path::Path;

use super::weights::{self, Format, Weights};

/// The name of the format in [`super::Weights`].
pub const FORMAT_NAME: &str = FORMAT.name;

/// The first field of a model, `ir_version`, as protobuf writes a number below 128.
const IR_VERSION: u8 = 0x08;

pub(super) const FORMAT: Format =
    Format { name: "ONNX", about: "ONNX graphs", recognises: is_model, read: read_weights, read_part: None };

/// ONNX has no signature; writers put its fields in order, and no version has reached 32.
fn is_model(head: &[u8]) -> bool {
    matches!(head, [IR_VERSION, 1..32, ..])
}

/// Reads the weights of an ONNX file for a network that is there already. Names are those that `model = "net.onnx"` gives them.
fn read_weights(path: &Path) -> Result<Weights, weights::Error> {
    let network = read(path)?.network()?;
    Ok(Weights {
        path: path.to_path_buf(),
        format: FORMAT.name,
        tensors: network.tensors,
        model: None,
        warning: None,
        keras: false,
    })
}

//! The weights of an ONNX file for a network that is there already: names are those that `model = "net.onnx"` gives them.

use std::path::Path;

use super::super::weights::{Error, Format, Weights};
use super::survey;

/// The first field of a model, `ir_version`, as protobuf writes a number below 128.
const IR_VERSION: u8 = 0x08;

pub(in crate::interop) const FORMAT: Format =
    Format { name: "ONNX", about: "ONNX graphs", recognises: is_model, read, read_part: None };

/// ONNX has no signature; writers put its fields in order, and no version has reached 32.
fn is_model(head: &[u8]) -> bool {
    matches!(head, [IR_VERSION, 1..32, ..])
}

fn read(path: &Path) -> Result<Weights, Error> {
    let network = survey::read(path)?.network()?;
    Ok(Weights {
        path: path.to_path_buf(),
        format: FORMAT.name,
        tensors: network.tensors,
        model: None,
        warning: None,
        keras: false,
    })
}

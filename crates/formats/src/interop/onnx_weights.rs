//! Reads the weights of an ONNX file for a network that already exists.

use std::path::Path;

use super::onnx::{FORMAT_NAME, read};
use super::weights::{Error, Format, Weights};

/// The first byte of an ONNX model: the protobuf tag of the field `ir_version`.
const IR_VERSION: u8 = 0x08;

pub(super) const FORMAT: Format =
    Format { name: FORMAT_NAME, about: "ONNX graphs", recognises: is_model, read: read_weights, read_part: None };

/// Recognises the field `ir_version` at the start, because ONNX has no signature. Writers put the fields in order, and
/// no version has reached 32.
fn is_model(head: &[u8]) -> bool {
    matches!(head, [IR_VERSION, 1..32, ..])
}

/// Reads the weights of an ONNX file for a network that already exists. The names are the same as with `model =
/// "net.onnx"`.
fn read_weights(path: &Path) -> Result<Weights, Error> {
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

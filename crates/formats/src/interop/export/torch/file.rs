//! A safetensors file: u64 length of a JSON header, the header, the values in the header's order without gaps.
//!
//! The crate of that name writes metadata in a random order, and equal models shall be equal bytes.

use std::cmp::Reverse;
use std::io::{self, BufWriter, Write};

use net::{Node, Op};
use serde_json::{Map, Value, json};

use super::super::about::about;
use super::super::number::Number;
use super::super::trained::{Trained, Values};

/// Values begin at a multiple of this.
const ALIGNMENT: usize = 8;

/// Writes all tensors of a network under PyTorch's names.
pub(super) fn write(trained: &Trained, number: Number, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let header = header(trained, number);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let tensors = tensors(trained, number).into_iter();
    tensors.map(|(_, tensor)| tensor).try_for_each(|it| out.write_all(&it.number(number).encode(it.values)))?;
    out.flush()
}

/// Every tensor with its layer, in the network's order; those of more bytes a value come first, since readers want each at a multiple of
/// the size of its values.
fn tensors(trained: &Trained, number: Number) -> Vec<(&Node, Values<'_>)> {
    let nodes = trained.network.net.nodes.iter();
    let tensors = nodes.flat_map(|node| trained.tensors(node).map(move |tensor| (node, tensor)));
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by_key(|(_, tensor)| Reverse(tensor.number(number).bytes()));
    tensors
}

/// The shape that PyTorch's module has, where ours differs by dimensions of 1.
fn shape(node: &Node, tensor: &Values<'_>) -> Vec<usize> {
    match &node.op {
        Op::LayerScale(_) => vec![tensor.values.len(), 1, 1],
        Op::Conv(conv) if conv.linear => tensor.shape.iter().take(2).copied().collect(),
        _ => tensor.shape.to_vec(),
    }
}

fn header(trained: &Trained, number: Number) -> String {
    let dtype = |number| match number {
        Number::F32 => "F32",
        Number::F16 => "F16",
    };
    let mut about: Map<String, Value> = about(trained).into_iter().map(|(name, text)| (name, text.into())).collect();
    about.insert("format".into(), "pt".into());
    let mut entries = vec![("__metadata__".to_string(), Value::Object(about))];
    let mut begin = 0;
    for (node, tensor) in tensors(trained, number) {
        let (own, shape) = (tensor.number(number), shape(node, &tensor));
        let end = begin + tensor.values.len() * own.bytes();
        let name = format!("{}.{}", node.name, tensor.field);
        entries.push((name, json!({"dtype": dtype(own), "shape": shape, "data_offsets": [begin, end]})));
        begin = end;
    }
    // one entry after another: a map of JSON would sort them
    let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    let mut header = format!("{{{}}}", entries.join(","));
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(ALIGNMENT) - header.len()));
    header
}

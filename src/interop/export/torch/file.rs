//! A safetensors file: u64 length of a JSON header, the header, the values in the header's order without gaps.
//!
//! The crate of that name writes metadata in a random order, and equal models shall be equal bytes.

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Value, json};

use super::super::about::about;
use super::super::number::Number;
use super::super::trained::{Trained, Values};
use crate::nn::spec::{Node, Op};

/// Values begin at a multiple of this.
const ALIGNMENT: usize = 8;

/// Writes all tensors of a network, in its order, under PyTorch's names.
pub(super) fn write(trained: &Trained, number: Number, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let header = header(trained, number);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    tensors(trained).try_for_each(|(_, tensor)| out.write_all(&number.encode(tensor.values)))?;
    out.flush()
}

/// Every tensor with its layer.
fn tensors(trained: &Trained) -> impl Iterator<Item = (&Node, Values<'_>)> {
    let nodes = trained.network.net.nodes.iter();
    nodes.flat_map(|node| trained.tensors(node).map(move |tensor| (node, tensor)))
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
    let dtype = match number {
        Number::F32 => "F32",
        Number::F16 => "F16",
    };
    let mut about: Map<String, Value> = about(trained).into_iter().map(|(name, text)| (name, text.into())).collect();
    about.insert("format".into(), "pt".into());
    let mut entries = vec![("__metadata__".to_string(), Value::Object(about))];
    let mut begin = 0;
    for (node, tensor) in tensors(trained) {
        let end = begin + tensor.values.len() * number.bytes();
        let name = format!("{}.{}", node.name, tensor.field);
        entries.push((name, json!({"dtype": dtype, "shape": shape(node, &tensor), "data_offsets": [begin, end]})));
        begin = end;
    }
    // one entry after another: a map of JSON would sort them
    let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    let mut header = format!("{{{}}}", entries.join(","));
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(ALIGNMENT) - header.len()));
    header
}

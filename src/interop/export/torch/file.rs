//! A safetensors file: u64 length of a JSON header, the header, the values in the header's order without gaps.
//!
//! The crate of that name writes metadata in a random order, and equal models shall be equal bytes.

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Value, json};

use super::super::about::about;
use super::super::number::Number;
use super::super::trained::{Trained, Values};

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

/// Every tensor with its name.
fn tensors(trained: &Trained) -> impl Iterator<Item = (String, Values<'_>)> {
    let of = |node| trained.tensors(node).map(move |tensor: Values<'_>| (node, tensor));
    trained
        .network
        .net
        .nodes
        .iter()
        .flat_map(of)
        .map(|(node, tensor)| (format!("{}.{}", node.name, tensor.field), tensor))
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
    for (name, tensor) in tensors(trained) {
        let end = begin + tensor.values.len() * number.bytes();
        // torchvision's shape of this one parameter
        let wide = [tensor.values.len(), 1, 1];
        let shape = if tensor.field == "layer_scale" { &wide[..] } else { tensor.shape };
        entries.push((name, json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]})));
        begin = end;
    }
    // one entry after another: a map of JSON would sort them
    let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    let mut header = format!("{{{}}}", entries.join(","));
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(ALIGNMENT) - header.len()));
    header
}

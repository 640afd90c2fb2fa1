//! Writes a safetensors file with PyTorch's names, and a Python file that builds the same `torch.nn.Module` and loads
//! the weights.
//!
//! - `module`: writes the Python file with its variables and paths. `code`: the code of one layer.

pub(crate) mod code;
mod module;

use std::cmp::Reverse;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use loaders::safe_create::NewFile;
use net::Node;
use serde_json::{Map, Value, json};

use super::format::{Error, Number};
use super::trained::{Trained, Values};
use crate::interop::ops::mapping;

/// Writes the weights to `weights` and the Python file to `code`. Publishes the files only after both have been
/// written.
pub(super) fn write(trained: &Trained, weights: &Path, code: &Path, number: Number) -> Result<(), Error> {
    let text = module::code(trained, weights)?;
    let new = |path: &Path, fill: &dyn Fn(&mut dyn Write) -> std::io::Result<()>| {
        let refuse = |source| Error::Io { path: path.to_path_buf(), source };
        let mut new = NewFile::beside(path).map_err(refuse)?;
        fill(new.file().map_err(refuse)?).map_err(refuse)?;
        Ok::<NewFile, Error>(new)
    };
    let first = new(weights, &|out| write_weights(trained, number, out))?;
    let second = new(code, &|out| out.write_all(text.as_bytes()))?;
    let publish = |new: NewFile, path: &Path| {
        new.publish().map(drop).map_err(|source| Error::Io { path: path.to_path_buf(), source })
    };
    publish(first, weights)?;
    publish(second, code)
}

/// Modules that the Python file imports. If it had the name of one of them, it would import itself.
const IMPORTED: [&str; 4] = ["json", "pathlib", "struct", "torch"];

/// Returns a note if Python cannot import the file under its name.
pub(super) fn unfit_name(code: &Path) -> Option<String> {
    let stem = code.file_stem()?.to_string_lossy();
    let why = if IMPORTED.contains(&&*stem) {
        format!("would hide the Python module {stem}, which it imports")
    } else if !code::is_name(&stem) {
        "has a name that Python cannot import".into()
    } else {
        return None;
    };
    Some(format!("note: {} {why}. Choose another name with -o, such as net.safetensors", code.display()))
}

// A safetensors file has the length of a JSON header as u64, the header, and the values in the order of the header
// without gaps. The crate `safetensors` writes metadata in a random order, but equal models must give equal bytes.

/// The values begin at a multiple of this number of bytes.
const ALIGNMENT: usize = 8;

/// Writes all tensors of a network under PyTorch's names.
fn write_weights(trained: &Trained, number: Number, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let header = header(trained, number);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let tensors = tensors(trained, number).into_iter();
    tensors.map(|(_, tensor)| tensor).try_for_each(|it| out.write_all(&it.number(number).encode(it.values)))?;
    out.flush()
}

/// Returns every tensor with its layer. Tensors with more bytes per value come first, because readers expect each
/// tensor to be aligned to the size of its values. Otherwise the order is that of the network.
fn tensors(trained: &Trained, number: Number) -> Vec<(&Node, Values<'_>)> {
    let nodes = trained.network.net.nodes.iter();
    let tensors = nodes.flat_map(|node| trained.tensors(node).map(move |tensor| (node, tensor)));
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by_key(|(_, tensor)| Reverse(tensor.number(number).bytes()));
    tensors
}

fn header(trained: &Trained, number: Number) -> String {
    let dtype = |number| match number {
        Number::F32 => "F32",
        Number::F16 => "F16",
    };
    let about = trained.model.metadata().into_iter();
    let mut about: Map<String, Value> = about.map(|(name, text)| (name, text.into())).collect();
    about.insert("format".into(), "pt".into());
    let mut entries = vec![("__metadata__".to_string(), Value::Object(about))];
    let mut begin = 0;
    for (node, tensor) in tensors(trained, number) {
        let (own, shape) = (tensor.number(number), mapping(&node.op).torch_shape(&tensor));
        let end = begin + tensor.values.len() * own.bytes();
        let name = format!("{}.{}", node.name, tensor.field);
        let name = net::torch_name(&name).unwrap_or(name);
        entries.push((name, json!({"dtype": dtype(own), "shape": shape, "data_offsets": [begin, end]})));
        begin = end;
    }
    // a JSON map would sort the entries
    let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    let mut header = format!("{{{}}}", entries.join(","));
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(ALIGNMENT) - header.len()));
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_python_cannot_import_get_a_note() {
        let of = |name: &str| unfit_name(Path::new(name));
        assert_eq!([of("net.py"), of("a/resnet20_2.py"), of("_x.py")], [None, None, None]);
        assert!(of("torch.py").is_some_and(|text| text.contains("torch.py") && text.contains("imports")));
        for odd in ["my-net.py", "2nd.py", "class.py", "a b.py"] {
            assert!(of(odd).is_some_and(|text| text.contains("cannot import")), "{odd}");
        }
    }
}

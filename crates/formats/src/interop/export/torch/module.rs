//! Writes the Python file: a class with the network's modules and its forward pass, and a reader for its safetensors
//! file that needs only torch.

use std::fmt::Write;
use std::path::Path;

use loaders::{Dtype, LabelKind};
use net::NetSpec;

use super::super::format::Error;
use super::super::network::Turn;
use super::super::trained::{Trained, fill_nodata};
use super::code::{parameter_place, path, quoted, turned};
use crate::interop::ops::mapping;

/// Modules by name. A leaf is the Python code of a module. A group has its members in the order of the network.
enum Tree {
    Leaf(String),
    Group(Vec<(String, Tree)>),
}

/// A parameter that is set directly on an existing module, see `Code::parameters`.
struct Parameter {
    /// The layer's name.
    layer: String,
    /// The tensor's name in the layer.
    field: &'static str,
    /// The module that receives the parameter, as Python code, and the parameter's name in it.
    place: (String, String),
    /// The expression that creates the parameter.
    code: String,
}

/// Returns the Python file. `weights` is the safetensors file next to it.
pub(super) fn code(trained: &Trained, weights: &Path) -> Result<String, Error> {
    let mut tree = Vec::new();
    let mut forward = String::new();
    let mut parameters = Vec::new();
    let mut variables = Variables::new(&trained.network.net);
    for layer in trained.network.layers() {
        let node = layer.node;
        let refuse = |why| Error::Op { layer: node.name.clone(), kind: node.op.kind(), format: "PyTorch", why };
        let v = node.inputs.iter().zip(&layer.turns).map(|(id, turn)| turned(*turn, variables.of(id.0)));
        let v: Vec<String> = v.collect();
        let place = if node.op.stored().is_some() { path(&node.name).map_err(refuse)? } else { String::new() };
        let code = mapping(&node.op).to_torch(&layer, &place, &v).map_err(refuse)?;
        if let Some(module) = code.module {
            insert(&mut tree, &node.name, module).map_err(refuse)?;
        }
        for (field, code) in code.parameters {
            let place = parameter_place(&layer, field).map_err(refuse)?;
            parameters.push(Parameter { layer: node.name.clone(), field, place, code });
        }
        let variable = variables.next(layer.index);
        if layer.serving {
            let _ = writeln!(forward, "        {variable} = {}", code.value);
        }
    }
    let end = (!trained.network.ends_flat()).then_some(Turn::Flatten);
    let _ = writeln!(forward, "        return {}", turned(end, variables.of(trained.network.net.nodes.len())));
    let mut modules = String::new();
    for Parameter { layer, field, .. } in &parameters {
        let name = format!("{layer}.{field}");
        if let Some((name, _)) = net::torch_name(&name).unwrap_or(name).rsplit_once('.') {
            group(&mut tree, name);
        }
    }
    tree.iter().for_each(|(name, tree)| print(tree, &format!("self.{name} = "), 8, "", &mut modules));
    for Parameter { place: (module, name), code, .. } in &parameters {
        let _ = writeln!(modules, "        {module}.register_parameter({}, {code})", quoted(name));
    }
    Ok(format!(
        "{}{IMPORTS}{}{CLASS}{modules}{FORWARD}{forward}{}",
        docstring(trained, weights),
        if forward.contains("windowed_attention(") { WINDOWS } else { "" },
        LOAD.replace("{file}", &name(weights))
    ))
}

/// Adds an empty group with this name if there is no module or group with the name.
fn group(tree: &mut Vec<(String, Tree)>, name: &str) {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    if !tree.iter().any(|(known, _)| known == first) {
        tree.push((first.into(), Tree::Group(Vec::new())));
    }
    let found = tree.iter_mut().find(|(known, _)| known == first);
    if let (Some(rest), Some((_, Tree::Group(inner)))) = (rest, found) {
        group(inner, rest);
    }
}

/// Adds a module under a name whose parts are separated by dots.
fn insert(tree: &mut Vec<(String, Tree)>, name: &str, module: String) -> Result<(), String> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let found = tree.iter().position(|(known, _)| known == first);
    match (rest, found) {
        (None, None) => tree.push((first.into(), Tree::Leaf(module))),
        (Some(rest), None) => {
            let mut group = Vec::new();
            insert(&mut group, rest, module)?;
            tree.push((first.into(), Tree::Group(group)));
        }
        (Some(rest), Some(at)) => match &mut tree[at].1 {
            Tree::Group(group) => insert(group, rest, module)?,
            Tree::Leaf(_) => {
                return Err(format!(
                    "{first} is both a layer and a group of layers, which PyTorch does not allow. Rename one of them"
                ));
            }
        },
        (None, Some(_)) => {
            return Err(format!(
                "{first} is both a group of layers and a layer, which PyTorch does not allow. Rename one of them"
            ));
        }
    }
    Ok(())
}

/// Writes a module, or a group of modules over several lines.
fn print(tree: &Tree, start: &str, indent: usize, end: &str, out: &mut String) {
    let margin = " ".repeat(indent);
    match tree {
        Tree::Leaf(module) => {
            let _ = writeln!(out, "{margin}{start}{module}{end}");
        }
        Tree::Group(members) => {
            let _ = writeln!(out, "{margin}{start}nn.ModuleDict({{");
            members.iter().for_each(|(name, tree)| print(tree, &format!("{}: ", quoted(name)), indent + 4, ",", out));
            let _ = writeln!(out, "{margin}}}){end}");
        }
    }
}

fn name(weights: &Path) -> String {
    quoted(&weights.file_name().unwrap_or_default().to_string_lossy())
}

fn docstring(trained: &Trained, weights: &Path) -> String {
    let model = &trained.model;
    let [c, h, w] = model.input;
    let module = weights.file_stem().unwrap_or_default().to_string_lossy();
    let classes = model.classes.len();
    let transforms = match model.preprocess.is_empty() {
        true => "none".to_string(),
        false => model.preprocess.join(", "),
    };
    let (names, of) = match model.label_kind() {
        LabelKind::Numbers => ("targets", "predicted numbers"),
        LabelKind::OneClass | LabelKind::Classes => ("classes", "classes"),
    };
    let dtype = model.bands.dtype;
    let (values, formula) = match dtype {
        Dtype::U8 => (
            "pixels from 0 to 255".to_string(),
            "(pixel / 255 - mean) / std for each channel. After log1p, scale, standardize or another\n\
             normalize it is (value - mean) / std.",
        ),
        _ => (format!("stored values of {dtype}"), "(value - mean) / std for each channel."),
    };
    let fill = fill_nodata(model).map_or_else(String::new, |fill| format!(" {fill}."));
    // quotes in a name must not end the docstring
    let plain = |text: &str| text.replace('\\', "/").replace('"', "'");
    format!(
        "\"\"\"{}, trained by trireme, as a module of PyTorch.\n\n    from {} import load\n    net, about = load()\n    \
         logits = net(images)        # float32 (N, {c}, {h}, {w}) to (N, {classes})\n\nabout[\"trireme.{names}\"] has the names of the \
         {of}, as JSON.{fill} Transforms of an image, {values}, in this order:\n{}\nnormalize(mean, std) is {formula} Its arguments are \
         all means, then all standard deviations.\n\"\"\"\n",
        plain(&model.network),
        plain(&module),
        plain(&transforms),
    )
}

const IMPORTS: &str = r#"
import json
import struct
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
"#;

/// Functions for attention in windows.
const WINDOWS: &str = include_str!("windows.py");

const CLASS: &str = r#"
class Net(nn.Module):
    """The network. Its parameters have the same names as in the file."""

    def __init__(self):
        super().__init__()
"#;

const FORWARD: &str = r#"
    def forward(self, x):
"#;

const LOAD: &str = r#"

def read(path):
    """Returns the tensors of a safetensors file by name, and its metadata."""
    data = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = header.pop("__metadata__", {})
    types = {"F32": torch.float32, "F16": torch.float16}
    tensors = {}
    for name, entry in header.items():
        kind, (begin, end) = types[entry["dtype"]], entry["data_offsets"]
        values = torch.frombuffer(data, dtype=kind, count=(end - begin) // kind.itemsize, offset=8 + length + begin)
        tensors[name] = values.reshape(entry["shape"])
    return tensors, about

def load(path=Path(__file__).with_name({file})):
    """Returns the network with its trained weights in evaluation mode, and the metadata of the file."""
    tensors, about = read(path)
    net = Net()
    net.load_state_dict(tensors)
    return net.eval(), about
"#;

/// Variable names, in order of use.
const VARIABLES: &[&str] = &["x", "y", "z", "u", "v", "w"];

/// Assigns a variable to each tensor. Reuses the variables of tensors that are no longer needed.
pub(super) struct Variables {
    /// For each tensor, the last layer that reads it.
    last: Vec<usize>,
    names: Vec<String>,
    /// The tensor in each variable. `None` if the variable is free.
    held: Vec<Option<usize>>,
}

impl Variables {
    /// Assigns the first variable to the network's input.
    pub fn new(net: &NetSpec) -> Self {
        let mut last = vec![0; net.nodes.len() + 1];
        for (index, node) in net.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|id| last[id.0] = index);
        }
        Self { last, names: vec![VARIABLES[0].into()], held: vec![Some(0)] }
    }

    /// Returns the variable of a tensor.
    pub fn of(&self, tensor: usize) -> String {
        self.names[tensor].clone()
    }

    /// Assigns a variable to the output of layer `index`. It may be the variable of an input that no later layer reads.
    pub fn next(&mut self, index: usize) -> String {
        for held in &mut self.held {
            if held.is_some_and(|tensor| self.last[tensor] <= index) {
                *held = None;
            }
        }
        let free = self.held.iter().position(Option::is_none).unwrap_or(self.held.len());
        if free == self.held.len() {
            self.held.push(None);
        }
        self.held[free] = Some(index + 1);
        let name = VARIABLES.get(free).map_or_else(|| format!("t{free}"), |name| name.to_string());
        self.names.push(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::ModelFile;
    use loaders::{Bands, Target};
    use net::{Add, Conv, LayerScale, Linear, NetSpec, Pool, Shape};

    /// Vectors become images if a convolution reads them. Images of one pixel become vectors if another input is a
    /// vector, and at the end of the network.
    #[test]
    fn inputs_are_reshaped_to_the_rank_that_modules_expect() {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let mean = net.add("mean", Pool::global(), net.image());
        let fc = net.add("fc", Linear::new(3), mean);
        let sum = net.join("sum", Add, &[fc, mean]);
        let scaled = net.add("scaled", LayerScale(0.5), sum);
        net.add("head", Conv::new(2, 1), scaled);
        let trained = Trained::new(net, ModelFile::sample()).unwrap();
        let code = code(&trained, Path::new("a.safetensors")).unwrap();
        for line in [
            "        y = self.fc(torch.flatten(x, 1))",
            "        x = y + torch.flatten(x, 1)",
            "        x = x * torch.flatten(self.scaled.layer_scale)",
            "        x = self.head(x[:, :, None, None])",
            "        return torch.flatten(x, 1)",
        ] {
            assert!(code.lines().any(|own| own == line), "no line {line} in\n{code}");
        }
    }

    /// Only `normalize` of bytes divides by 255.
    #[test]
    fn the_description_has_the_units_of_the_values() {
        let text = |model: ModelFile| {
            let mut net = NetSpec::new("x", Shape::image(3, 8, 8));
            let mean = net.add("mean", Pool::global(), net.image());
            net.add("fc", Linear::new(2), mean);
            docstring(&Trained::new(net, model).unwrap(), Path::new("a.safetensors"))
        };
        let bytes = text(ModelFile::sample());
        assert!(bytes.contains("(pixel / 255 - mean) / std") && bytes.contains("\"trireme.classes\""), "{bytes}");
        let bands = Bands { dtype: Dtype::U16, channels: Some(3), nodata: Some(7.0), ..Bands::default() };
        let targets = ["x", "y"].map(Target::new).to_vec();
        let wide = text(ModelFile { bands, targets, ..ModelFile::sample() });
        for part in [
            "values of uint16",
            "is (value - mean) / std",
            "Before all transforms, replace 7 by",
            "\"trireme.targets\"",
        ] {
            assert!(wide.contains(part), "no {part} in {wide}");
        }
        assert!(!wide.contains("255"), "{wide}");
    }

    #[test]
    fn a_layer_with_the_name_of_a_group_is_refused() {
        let mut tree = Vec::new();
        insert(&mut tree, "a.b", "B".into()).unwrap();
        insert(&mut tree, "a.c", "C".into()).unwrap();
        assert!(insert(&mut tree, "a", "A".into()).unwrap_err().contains("a is both"));
        assert!(insert(&mut tree, "a.b.d", "D".into()).unwrap_err().contains("b is both"));
        let mut text = String::new();
        print(&tree[0].1, "self.a = ", 0, "", &mut text);
        assert_eq!(text, "self.a = nn.ModuleDict({\n    \"b\": B,\n    \"c\": C,\n})\n");
    }

    #[test]
    fn dotted_names_become_python_paths() {
        assert_eq!(path("fc").unwrap(), "self.fc");
        assert_eq!(path("layer1.0.conv1").unwrap(), "self.layer1[\"0\"][\"conv1\"]");
        // an `nn.ModuleDict` has the attribute `values`, and its keys may be Python keywords
        assert_eq!(path("a.in").unwrap(), "self.a[\"in\"]");
        assert_eq!(path("values.0").unwrap(), "self.values[\"0\"]");
        for bad in ["", "0.conv", "train", "a-b", "class.0", "a..b", "b.values", "b.keys.0", "b.0.pop", "b.train"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }
}

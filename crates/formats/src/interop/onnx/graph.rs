//! The graph of an ONNX file: nodes with their attributes, weights, inputs and outputs.

use std::collections::{BTreeMap, BTreeSet};

use net::Id;

use super::message::Message;
use super::tensor::Stored;
use crate::checkpoint::ModelFile;

#[derive(Debug, Default)]
pub(crate) struct Graph<'a> {
    pub nodes: Vec<Node<'a>>,
    pub tensors: BTreeMap<&'a str, Stored<'a>>,
    /// The inputs that a node reads, without the weights. Old files also list weights as inputs, and tf2onnx lists
    /// constants that it has already computed.
    pub inputs: Vec<Input<'a>>,
    pub outputs: Vec<&'a str>,
    /// Version of ONNX's standard operators.
    pub opset: i64,
    /// The metadata of an export by trireme, by name.
    pub about: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug, Default)]
pub(crate) struct Input<'a> {
    pub name: &'a str,
    /// ONNX's number for the type of the values.
    pub kind: i64,
    pub dims: Vec<Dim<'a>>,
}

/// A dimension of an input: its size, or a name if the size may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim<'a> {
    Known(i64),
    Named(&'a str),
}

#[derive(Debug, Default)]
pub(crate) struct Node<'a> {
    pub name: &'a str,
    pub op: &'a str,
    pub domain: &'a str,
    /// Names of tensors. The name is empty for an optional input that the node leaves out.
    pub inputs: Vec<&'a str>,
    pub outputs: Vec<&'a str>,
    attributes: Vec<Attribute<'a>>,
}

/// An attribute of a node. The fields of the types that it does not have are empty. `odd` is true if the type is not
/// supported.
#[derive(Debug, Default)]
struct Attribute<'a> {
    name: &'a str,
    float: f32,
    int: i64,
    text: &'a [u8],
    tensor: Option<Stored<'a>>,
    floats: Vec<u8>,
    ints: Vec<i64>,
    odd: bool,
}

/// Maximum number of nodes, and of weights.
const MOST: usize = 20_000;

/// Limit for the inputs of a node, the outputs of a node, and the outputs of the graph.
const MOST_VALUES: usize = 256;

/// Maximum number of attributes per node.
const MOST_ATTRIBUTES: usize = 32;

/// Maximum number of integers per attribute.
const MOST_INTS: usize = 64;

/// The supported opsets. Before opset 7, operators had different rules for broadcasting.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=24;

impl<'a> Graph<'a> {
    /// Parses a file (`ModelProto`).
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let mut graph = None;
        let mut opset = None;
        let mut about = BTreeMap::new();
        let mut functions = false;
        for field in Message::new(bytes) {
            let field = field?;
            match field.number {
                7 => graph = Some(Self::of(field.message()?)?),
                8 => opset = version(field.message()?)?.or(opset),
                // metadata of other programs can have any content
                14 => {
                    if let Ok((name, text)) = field.message().and_then(entry)
                        && name.starts_with(ModelFile::METADATA_PREFIX)
                    {
                        about.insert(name, text);
                    }
                }
                25 => functions = true,
                _ => {}
            }
        }
        let Some(graph) = graph else { return Err("it has no graph, so it is not an ONNX model".into()) };
        match opset {
            Some(opset) if OPSETS.contains(&opset) && !functions => Ok(Self { opset, about, ..graph }),
            Some(_) if functions => Err(
                "it defines its own functions, which are not supported. Export with torch.onnx.export, or inline them"
                    .into(),
            ),
            Some(opset) => Err(format!(
                "it uses opset {opset}, but only {} to {} are supported. Export it with opset_version=17, or use onnx.version_converter",
                OPSETS.start(),
                OPSETS.end()
            )),
            None => Err("it states no opset, so it is not an ONNX model".into()),
        }
    }

    fn of(message: Message<'a>) -> Result<Self, String> {
        let mut graph = Self::default();
        for field in message {
            let field = field?;
            match field.number {
                1 => graph.nodes.push(Node::read(field.message()?)?),
                5 => {
                    let tensor = Stored::read(field.message()?)?;
                    graph.tensors.insert(tensor.name, tensor);
                }
                11 => graph.inputs.push(Input::read(field.message()?)?),
                12 => graph.outputs.push(Input::read(field.message()?)?.name),
                15 => return Err("it has sparse weights, which are not supported. Store them as dense tensors".into()),
                _ => {}
            }
            let limits = [
                ("nodes", graph.nodes.len(), MOST),
                ("weights", graph.tensors.len(), MOST),
                ("inputs", graph.inputs.len(), MOST + MOST_VALUES),
                ("outputs", graph.outputs.len(), MOST_VALUES),
            ];
            if let Some((what, _, most)) = limits.into_iter().find(|(_, count, most)| count > most) {
                return Err(format!("it has more than {most} {what}, which is the limit"));
            }
        }
        let Self { nodes, inputs, tensors, .. } = &mut graph;
        let read: BTreeSet<&str> = nodes.iter().flat_map(|node| &node.inputs).copied().collect();
        inputs.retain(|input| read.contains(input.name) && !tensors.contains_key(input.name));
        Ok(graph)
    }
}

/// Returns the name and the text of a metadata entry (`StringStringEntryProto`).
fn entry(entry: Message<'_>) -> Result<(&str, &str), String> {
    let (mut name, mut text) = ("", "");
    for field in entry {
        let field = field?;
        match field.number {
            1 => name = field.text()?,
            2 => text = field.text()?,
            _ => {}
        }
    }
    Ok((name, text))
}

/// Returns the version of ONNX's standard operators. Returns `None` if the entry describes another domain.
fn version(entry: Message<'_>) -> Result<Option<i64>, String> {
    let (mut domain, mut version) = ("", 0);
    for field in entry {
        let field = field?;
        match field.number {
            1 => domain = field.text()?,
            2 => version = field.int()?,
            _ => {}
        }
    }
    Ok(is_own(domain).then_some(version))
}

fn is_own(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

impl<'a> Input<'a> {
    /// Parses the name, type and shape of an input or output (`ValueInfoProto`).
    fn read(message: Message<'a>) -> Result<Self, String> {
        let mut input = Self::default();
        for field in message {
            let field = field?;
            match field.number {
                1 => input.name = field.text()?,
                2 => input.read_type(field.message()?)?,
                _ => {}
            }
        }
        Ok(input)
    }

    fn read_type(&mut self, message: Message<'a>) -> Result<(), String> {
        for field in message {
            let field = field?;
            if field.number != 1 {
                continue;
            }
            for field in field.message()? {
                let field = field?;
                match field.number {
                    1 => self.kind = field.int()?,
                    2 => self.dims = dims(field.message()?)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn dims(message: Message<'_>) -> Result<Vec<Dim<'_>>, String> {
    let mut dims = Vec::new();
    for field in message {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        if dims.len() == 8 {
            return Err("it has an input or output with more than 8 dimensions".into());
        }
        let mut dim = Dim::Named("?");
        for field in field.message()? {
            let field = field?;
            match field.number {
                1 => dim = Dim::Known(field.int()?),
                2 => dim = Dim::Named(field.text()?),
                _ => {}
            }
        }
        dims.push(dim);
    }
    Ok(dims)
}

impl<'a> Node<'a> {
    fn read(message: Message<'a>) -> Result<Self, String> {
        let mut node = Self::default();
        for field in message {
            let field = field?;
            match field.number {
                1 => node.inputs.push(field.text()?),
                2 => node.outputs.push(field.text()?),
                3 => node.name = field.text()?,
                4 => node.op = field.text()?,
                5 => node.attributes.push(Attribute::read(field.message()?)?),
                7 => node.domain = field.text()?,
                _ => {}
            }
            let limits = [
                ("inputs", node.inputs.len(), MOST_VALUES),
                ("outputs", node.outputs.len(), MOST_VALUES),
                ("attributes", node.attributes.len(), MOST_ATTRIBUTES),
            ];
            if let Some((what, _, most)) = limits.into_iter().find(|(_, count, most)| count > most) {
                return Err(format!("node {}: it has more than {most} {what}, which is the limit", node.label()));
            }
        }
        Ok(node)
    }

    /// Returns the node's name for messages. A node without a name gets its first output's name.
    pub fn label(&self) -> &'a str {
        if self.name.is_empty() { self.outputs.first().copied().unwrap_or("") } else { self.name }
    }

    /// Returns true if the node is one of ONNX's standard operators.
    pub fn is_own(&self) -> bool {
        is_own(self.domain)
    }

    fn find(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// Returns an error if the node has an attribute that is not in `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.attributes.iter().find(|a| a.odd || !known.contains(&a.name)) {
            Some(attribute) => Err(format!("its attribute {} is not supported", attribute.name)),
            None => Ok(()),
        }
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.find(name).map_or(default, |attribute| attribute.int)
    }

    pub fn float(&self, name: &str, default: f32) -> f32 {
        self.find(name).map_or(default, |attribute| attribute.float)
    }

    /// Returns the epsilon that a normalisation adds to the variance.
    pub fn eps(&self) -> Result<f32, String> {
        let eps = self.float("epsilon", 1e-5);
        if eps > 0.0 && eps.is_finite() {
            Ok(eps)
        } else {
            Err(format!("its epsilon must be > 0, got {eps}; export the network with eps=1e-5"))
        }
    }

    pub fn text(&self, name: &str) -> &'a str {
        self.find(name).and_then(|attribute| std::str::from_utf8(attribute.text).ok()).unwrap_or("")
    }

    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.find(name).map(|attribute| attribute.ints.as_slice())
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        let floats = &self.find(name)?.floats;
        Some(floats.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn tensor(&self, name: &str) -> Option<&Stored<'a>> {
        self.find(name)?.tensor.as_ref()
    }
}

impl<'a> Attribute<'a> {
    fn read(message: Message<'a>) -> Result<Self, String> {
        let mut attribute = Self::default();
        for field in message {
            let field = field?;
            match field.number {
                1 => attribute.name = field.text()?,
                2 => attribute.float = field.float()?,
                3 => attribute.int = field.int()?,
                4 => attribute.text = field.bytes()?,
                5 => attribute.tensor = Some(Stored::read(field.message()?)?),
                7 => field.fixed(&mut attribute.floats)?,
                8 => field.ints(&mut attribute.ints, MOST_INTS)?,
                6 | 9 | 10 | 11 | 22 | 23 => attribute.odd = true,
                _ => {}
            }
        }
        attribute.odd |= attribute.ints.len() > MOST_INTS;
        Ok(attribute)
    }
}

/// Counts how often each tensor is read. The weights of a layer may be changed only if a single node reads its output.
pub(crate) struct Readers<'a> {
    /// How often each name is read. A graph output also counts as a reader.
    names: BTreeMap<&'a str, usize>,
    /// Number of readers of each tensor under all its names, without nodes such as Identity that only give it another
    /// name.
    tensors: BTreeMap<usize, usize>,
}

impl<'a> Readers<'a> {
    /// Counts the readers of all names in the graph. No name belongs to a tensor yet.
    pub fn new(graph: &Graph<'a>) -> Self {
        let mut names = BTreeMap::new();
        graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs).for_each(|name| {
            *names.entry(*name).or_insert(0) += 1;
        });
        Self { names, tensors: BTreeMap::new() }
    }

    /// Records that `name` is a name of `tensor`. `read` is how often the node that adds the name reads the tensor
    /// itself. These reads do not count.
    pub fn name(&mut self, tensor: Id, name: &str, read: usize) {
        let count = self.tensors.entry(tensor.0).or_insert(0);
        *count = (*count + self.names.get(name).unwrap_or(&0)).saturating_sub(read);
    }

    /// Returns true if the tensor has exactly one reader under all its names.
    pub fn is_one(&self, tensor: Id) -> bool {
        self.tensors.get(&tensor.0) == Some(&1)
    }
}

//! A graph of ONNX under construction: nodes, weights, inputs and outputs. Field numbers are those of onnx.proto.

use std::collections::BTreeSet;

use loaders::protobuf::Message;
use net::Shape;

use super::super::format::Number;
use super::super::trained::Values;

/// ONNX's types of values.
mod kind {
    pub(super) const FLOAT: i64 = 1;
    pub(super) const UINT8: i64 = 2;
    pub(super) const INT64: i64 = 7;
    pub(super) const FLOAT16: i64 = 10;
}

/// ONNX's types of attributes.
mod attribute {
    pub(super) const FLOAT: i64 = 1;
    pub(super) const INT: i64 = 2;
    pub(super) const TEXT: i64 = 3;
    pub(super) const INTS: i64 = 7;
}

/// What makes a node give floats.
const FLOATS: [(&str, Attribute<'_>); 1] = [("to", Attribute::Int(kind::FLOAT))];

/// Name of the first dimension, which may have any size.
const IMAGES: &str = "N";

/// An attribute of a node.
pub(crate) enum Attribute<'a> {
    Float(f32),
    Int(i64),
    Ints(&'a [usize]),
    Text(&'a str),
}

/// A graph.
pub(crate) struct Graph {
    number: Number,
    nodes: Message,
    weights: Message,
    inputs: Message,
    outputs: Message,
    /// Names of values, each of which one thing has.
    names: BTreeSet<String>,
}

impl Graph {
    /// An empty one whose weights have this type.
    pub fn new(number: Number) -> Self {
        let [nodes, weights, inputs, outputs] = std::array::from_fn(|_| Message::default());
        Self { number, nodes, weights, inputs, outputs, names: BTreeSet::new() }
    }

    /// Keeps a name for what others find by it.
    pub fn keep(&mut self, name: &str) {
        self.names.insert(name.into());
    }

    /// A name that nothing has yet: this one, or one with a number.
    pub fn free(&mut self, wanted: &str) -> String {
        let numbered = |n: usize| if n == 1 { wanted.to_string() } else { format!("{wanted}_{n}") };
        let free = (1..).map(numbered).find(|name| !self.names.contains(name)).unwrap_or_default();
        self.names.insert(free.clone());
        free
    }

    /// Adds an input of float images (N, C, H, W).
    pub fn images(&mut self, name: &str, x: Shape) -> String {
        self.input(name, kind::FLOAT, &[x.c, x.h, x.w])
    }

    /// Adds an input of images as bytes (N, H, W, C).
    pub fn bytes(&mut self, name: &str, x: Shape) -> String {
        self.input(name, kind::UINT8, &[x.h, x.w, x.c])
    }

    fn input(&mut self, name: &str, kind: i64, sizes: &[usize]) -> String {
        self.inputs = std::mem::take(&mut self.inputs).message(11, value(name, kind, sizes));
        name.into()
    }

    /// Adds an output of floats (N, `features`).
    pub fn output(&mut self, name: &str, features: usize) {
        self.outputs = std::mem::take(&mut self.outputs).message(12, value(name, kind::FLOAT, &[features]));
    }

    /// Adds a node with one output, and gives its name: this one if it is free.
    pub fn node(
        &mut self,
        op: &str,
        inputs: &[impl AsRef<str>],
        wanted: &str,
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let output = self.free(wanted);
        self.named(op, inputs, &output, attributes)
    }

    /// The same under a name that was kept for it.
    pub fn named(
        &mut self,
        op: &str,
        inputs: &[impl AsRef<str>],
        output: &str,
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input.as_ref()));
        let node = node.text(2, output).text(3, output).text(4, op);
        let node = attributes.iter().fold(node, |node, (name, value)| node.message(5, attribute(name, value)));
        self.nodes = std::mem::take(&mut self.nodes).message(1, &node);
        output.into()
    }

    /// Adds a tensor of the network, whose name was kept; one of 16 bits is widened by a node.
    pub fn weight(&mut self, name: &str, tensor: Values<'_>) -> String {
        let kind = match tensor.number(self.number) {
            Number::F32 => return self.tensor(name, kind::FLOAT, tensor.shape, &Number::F32.encode(tensor.values)),
            Number::F16 => kind::FLOAT16,
        };
        let narrow = self.free(&format!("{name}.half"));
        self.tensor(&narrow, kind, tensor.shape, &Number::F16.encode(tensor.values));
        self.named("Cast", &[&narrow], name, &FLOATS)
    }

    /// Adds a constant of floats.
    pub fn floats(&mut self, wanted: &str, shape: &[usize], values: &[f32]) -> String {
        let name = self.free(wanted);
        self.tensor(&name, kind::FLOAT, shape, &Number::F32.encode(values))
    }

    /// Adds a list of integers.
    pub fn ints(&mut self, wanted: &str, values: &[i64]) -> String {
        let name = self.free(wanted);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(&name, kind::INT64, &[values.len()], &bytes)
    }

    /// Adds a node that makes f32 of other numbers.
    pub fn cast(&mut self, from: &str, to: &str) -> String {
        self.node("Cast", &[from], to, &FLOATS)
    }

    fn tensor(&mut self, name: &str, kind: i64, shape: &[usize], bytes: &[u8]) -> String {
        let sizes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        let tensor = Message::default().ints(1, &sizes).int(2, kind).text(8, name).raw(9, bytes);
        self.weights = std::mem::take(&mut self.weights).message(5, &tensor);
        name.into()
    }

    /// The graph as a message.
    pub fn finish(self, name: &str) -> Message {
        let Self { number: _, nodes, weights, inputs, outputs, names: _ } = self;
        let named = Message::default().text(2, name);
        [weights, inputs, outputs].iter().fold(nodes.join(&named), |graph, part| graph.join(part))
    }
}

/// A tensor's name, type and shape; the number of images comes first.
fn value(name: &str, kind: i64, sizes: &[usize]) -> Message {
    let images = Message::default().text(2, IMAGES);
    let shape = Message::default().message(1, &images);
    let size = |&n: &usize| Message::default().int(1, n as i64);
    let shape = sizes.iter().map(size).fold(shape, |shape, size| shape.message(1, &size));
    let tensor = Message::default().int(1, kind).message(2, &shape);
    Message::default().text(1, name).message(2, Message::default().message(1, &tensor))
}

fn attribute(name: &str, value: &Attribute<'_>) -> Message {
    let named = Message::default().text(1, name);
    match value {
        Attribute::Float(value) => named.float(2, *value).int(20, attribute::FLOAT),
        Attribute::Int(value) => named.int(3, *value).int(20, attribute::INT),
        Attribute::Text(text) => named.text(4, text).int(20, attribute::TEXT),
        Attribute::Ints(values) => {
            let values: Vec<i64> = values.iter().map(|&n| n as i64).collect();
            named.ints(8, &values).int(20, attribute::INTS)
        }
    }
}

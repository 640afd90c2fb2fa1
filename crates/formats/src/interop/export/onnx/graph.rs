//! Builds an ONNX graph: nodes, weights, inputs and outputs. Field numbers are those of onnx.proto.

use std::collections::BTreeSet;

use loaders::Dtype;
use loaders::protobuf::Message;
use net::Shape;

use super::super::format::Number;
use super::super::trained::Values;

/// Numbers of the data types (`TensorProto.DataType`).
mod kind {
    pub(super) const FLOAT: i64 = 1;
    pub(super) const UINT8: i64 = 2;
    pub(super) const UINT16: i64 = 4;
    pub(super) const INT16: i64 = 5;
    pub(super) const INT64: i64 = 7;
    pub(super) const FLOAT16: i64 = 10;
}

/// Numbers of the attribute types (`AttributeProto.AttributeType`).
mod attribute {
    pub(super) const FLOAT: i64 = 1;
    pub(super) const INT: i64 = 2;
    pub(super) const TEXT: i64 = 3;
    pub(super) const INTS: i64 = 7;
}

/// The attribute of a Cast node that converts to f32.
const FLOATS: [(&str, Attribute<'_>); 1] = [("to", Attribute::Int(kind::FLOAT))];

/// Name of the first dimension, which may have any size.
const IMAGES: &str = "N";

pub(crate) enum Attribute<'a> {
    Float(f32),
    Int(i64),
    Ints(&'a [usize]),
    Text(&'a str),
}

/// A graph to which nodes and weights are added.
pub(crate) struct Graph {
    number: Number,
    nodes: Message,
    weights: Message,
    inputs: Message,
    outputs: Message,
    /// All names in use. Names of tensors must be unique.
    names: BTreeSet<String>,
}

impl Graph {
    /// Creates an empty graph. Weights are stored as `number`.
    pub fn new(number: Number) -> Self {
        let [nodes, weights, inputs, outputs] = std::array::from_fn(|_| Message::default());
        Self { number, nodes, weights, inputs, outputs, names: BTreeSet::new() }
    }

    /// Reserves a name, so that [`Self::free`] does not return it.
    pub fn keep(&mut self, name: &str) {
        self.names.insert(name.into());
    }

    /// Reserves and returns an unused name: `wanted`, or `wanted` with a number.
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

    /// Adds an input of images as stored values (N, H, W, C).
    pub fn stored(&mut self, name: &str, dtype: Dtype, x: Shape) -> String {
        let kind = match dtype {
            Dtype::U8 => kind::UINT8,
            Dtype::U16 => kind::UINT16,
            Dtype::I16 => kind::INT16,
            Dtype::F32 => kind::FLOAT,
        };
        self.input(name, kind, &[x.h, x.w, x.c])
    }

    fn input(&mut self, name: &str, kind: i64, sizes: &[usize]) -> String {
        self.inputs = std::mem::take(&mut self.inputs).message(11, value(name, kind, sizes));
        name.into()
    }

    /// Adds an output of floats (N, `features`).
    pub fn output(&mut self, name: &str, features: usize) {
        self.outputs = std::mem::take(&mut self.outputs).message(12, value(name, kind::FLOAT, &[features]));
    }

    /// Adds a node with one output and returns the output's name: `wanted`, or `wanted` with a number if it is in use.
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

    /// Adds a node whose output has the name `output`, which must be reserved.
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

    /// Adds a weight of the network with a reserved name. If weights are stored as f16, a Cast node converts it to f32.
    pub fn weight(&mut self, name: &str, tensor: Values<'_>) -> String {
        let kind = match tensor.number(self.number) {
            Number::F32 => return self.tensor(name, kind::FLOAT, tensor.shape, &Number::F32.encode(tensor.values)),
            Number::F16 => kind::FLOAT16,
        };
        let narrow = self.free(&format!("{name}.half"));
        self.tensor(&narrow, kind, tensor.shape, &Number::F16.encode(tensor.values));
        self.named("Cast", &[&narrow], name, &FLOATS)
    }

    /// Adds an f32 constant and returns its name.
    pub fn floats(&mut self, wanted: &str, shape: &[usize], values: &[f32]) -> String {
        let name = self.free(wanted);
        self.tensor(&name, kind::FLOAT, shape, &Number::F32.encode(values))
    }

    /// Adds a constant list of integers and returns its name.
    pub fn ints(&mut self, wanted: &str, values: &[i64]) -> String {
        let name = self.free(wanted);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(&name, kind::INT64, &[values.len()], &bytes)
    }

    /// Adds a node that converts to f32.
    pub fn cast(&mut self, from: &str, to: &str) -> String {
        self.node("Cast", &[from], to, &FLOATS)
    }

    fn tensor(&mut self, name: &str, kind: i64, shape: &[usize], bytes: &[u8]) -> String {
        let sizes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        let tensor = Message::default().ints(1, &sizes).int(2, kind).text(8, name).raw(9, bytes);
        self.weights = std::mem::take(&mut self.weights).message(5, &tensor);
        name.into()
    }

    /// Returns the graph as a protobuf message.
    pub fn finish(self, name: &str) -> Message {
        let Self { number: _, nodes, weights, inputs, outputs, names: _ } = self;
        let named = Message::default().text(2, name);
        [weights, inputs, outputs].iter().fold(nodes.join(&named), |graph, part| graph.join(part))
    }
}

/// Describes an input or output (`ValueInfoProto`). The first dimension is the number of images, which may vary.
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

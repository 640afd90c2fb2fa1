//! Adds the nodes of one layer.

use super::graph::Attribute::{self, Int};
use super::graph::Graph;
use crate::interop::export::network::{Layer, Turn};
use crate::interop::export::trained::{Trained, Values};

/// Adds the nodes of one layer to a graph. The last node computes the layer's output.
pub(crate) struct LayerWriter<'a> {
    pub graph: &'a mut Graph,
    pub trained: &'a Trained,
    pub layer: &'a Layer<'a>,
    pub out: &'a str,
}

impl LayerWriter<'_> {
    /// Returns `LAYER.what`, a name for a helper node or constant of the layer.
    fn inner(&self, what: &str) -> String {
        format!("{}.{what}", self.layer.node.name)
    }

    /// Adds a node inside the layer and returns the name of its output.
    pub fn node(
        &mut self,
        op: &str,
        inputs: &[impl AsRef<str>],
        what: &str,
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        let name = self.inner(what);
        self.graph.node(op, inputs, &name, attributes)
    }

    /// Adds the node that computes the layer's output.
    pub fn output(&mut self, op: &str, inputs: &[impl AsRef<str>], attributes: &[(&str, Attribute<'_>)]) -> String {
        self.graph.named(op, inputs, self.out, attributes)
    }

    /// Adds the node that computes the layer's output. If `relu` is set, adds a ReLU after it.
    pub fn output_with_relu(
        &mut self,
        op: &str,
        inputs: &[impl AsRef<str>],
        relu: bool,
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        if !relu {
            return self.output(op, inputs, attributes);
        }
        let linear = self.node(op, inputs, "linear", attributes);
        self.output("Relu", &[linear], &[])
    }

    /// Adds a float constant inside the layer.
    pub fn floats(&mut self, what: &str, shape: &[usize], values: &[f32]) -> String {
        self.graph.floats(&self.inner(what), shape, values)
    }

    /// Adds a list of integers inside the layer.
    pub fn ints(&mut self, what: &str, values: &[i64]) -> String {
        self.graph.ints(&self.inner(what), values)
    }

    /// Adds the layer's tensors. Returns `x` followed by their names in PyTorch's order.
    pub fn and_weights(&mut self, x: &str) -> Vec<String> {
        let name = &self.layer.node.name;
        let tensors = self.trained.tensors(self.layer.node);
        let weights = tensors.map(|tensor| self.graph.weight(&format!("{name}.{}", tensor.field), tensor));
        std::iter::once(x.to_string()).chain(weights).collect()
    }

    /// Returns the values in the layer's tensor with this PyTorch name. Empty if the layer has no such tensor.
    pub fn values(&self, field: &str) -> Vec<f32> {
        let found = self.trained.tensors(self.layer.node).find(|tensor| tensor.field == field);
        found.map_or(Vec::new(), |tensor| tensor.values.to_vec())
    }

    /// Adds a weight with these values. It is named after the layer and the tensor `field`.
    pub fn weight(&mut self, field: &str, shape: &[usize], values: &[f32]) -> String {
        let name = self.inner(field);
        self.graph.weight(&name, Values { field, shape, values, wide: false })
    }

    /// Adds a tensor that has one number per channel, in a shape that broadcasts over the layer's input.
    pub fn per_channel(&mut self, field: &str) -> String {
        let (values, wide) = (self.values(field), [self.layer.x[0].c, 1, 1]);
        let shape = if self.layer.flat { &wide[..1] } else { &wide[..] };
        self.weight(field, shape, &values)
    }
}

/// Converts an input to the number of dimensions that its layer reads.
pub(super) fn turned(graph: &mut Graph, layer: &Layer<'_>, turn: Option<Turn>, input: &str) -> String {
    let inner = |what: &str| format!("{}.{what}", layer.node.name);
    match turn {
        None => input.into(),
        Some(Turn::Flatten) => graph.node("Flatten", &[input], &inner("flat"), &[("axis", Int(1))]),
        Some(Turn::Image) => {
            let axes = graph.ints(&inner("axes"), &[2, 3]);
            graph.node("Unsqueeze", &[input, &axes], &inner("image"), &[])
        }
    }
}

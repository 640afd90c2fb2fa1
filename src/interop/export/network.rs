//! A network with the shapes of its tensors, as the tables of ops take it.

use super::error::Error;
use crate::nn::spec::{Activation, Id, NetSpec, Node, Op, Reads, Shape};

/// A network that fits together.
pub(super) struct Network {
    /// Its layers; at least one.
    pub net: NetSpec,
    /// Shape of every tensor, the input first.
    pub shapes: Vec<Shape>,
}

/// A layer with what surrounds it.
pub(super) struct Layer<'a> {
    /// Its place in the network; its output is tensor index + 1.
    pub index: usize,
    /// The layer.
    pub node: &'a Node,
    /// Shapes of its inputs.
    pub x: Vec<Shape>,
    /// Shape of its output.
    pub y: Shape,
    /// Whether each of its inputs has two dimensions, images and features, and not four.
    pub flat: Vec<bool>,
    /// Whether the network's scores depend on it, and not those of auxiliary classifiers alone.
    pub serving: bool,
}

impl Network {
    /// Computes the shapes.
    ///
    /// # Errors
    /// [`Error::Network`] for a network that does not fit together.
    pub fn new(net: NetSpec) -> Result<Self, Error> {
        let refuse = |why: String| Error::Network { network: net.name.clone(), why };
        if net.nodes.is_empty() {
            return Err(refuse("it has no layers".into()));
        }
        let shapes = net.shapes().map_err(|error| refuse(error.to_string()))?;
        Ok(Self { net, shapes })
    }

    /// All layers, in the order in which they run.
    pub fn layers(&self) -> impl Iterator<Item = Layer<'_>> {
        self.net.nodes.iter().zip(self.net.serving()).enumerate().map(|(index, (node, serving))| {
            let x = node.inputs.iter().map(|id| self.shapes[id.0]).collect();
            let flat = node.inputs.iter().map(|id| self.is_flat(*id)).collect();
            Layer { index, node, x, y: self.shapes[index + 1], flat, serving }
        })
    }

    /// Whether a layer is the last, whose output is the network's.
    pub fn is_last(&self, layer: &Layer<'_>) -> bool {
        layer.index + 1 == self.net.nodes.len()
    }

    /// Shape of the output.
    pub fn output(&self) -> Shape {
        self.shapes[self.net.nodes.len()]
    }

    /// How many layers read a tensor.
    pub fn readers(&self, id: Id) -> usize {
        self.net.nodes.iter().flat_map(|node| &node.inputs).filter(|input| **input == id).count()
    }

    /// Whether no value of a tensor is below zero.
    pub fn is_positive(&self, id: Id) -> bool {
        let Some(index) = id.0.checked_sub(1) else { return false };
        let node = &self.net.nodes[index];
        match &node.op {
            Op::Activation(Activation::Relu | Activation::Relu6 | Activation::Sigmoid | Activation::HardSigmoid) => {
                true
            }
            Op::Conv(conv) => conv.relu,
            Op::Linear(linear) => linear.relu,
            Op::Norm(norm) => norm.relu,
            Op::Pool(_) | Op::Dropout(_) | Op::DropPath(_) | Op::Flatten(_) | Op::Shortcut(_) | Op::BlurPool(_) => {
                self.is_positive(node.inputs[0])
            }
            Op::Add(_) | Op::Concat(_) | Op::Multiply(_) => node.inputs.iter().all(|id| self.is_positive(*id)),
            _ => false,
        }
    }

    /// Whether a tensor has two dimensions, images and features, and not four.
    fn is_flat(&self, id: Id) -> bool {
        let Some(index) = id.0.checked_sub(1) else { return false };
        let node = &self.net.nodes[index];
        match node.op {
            Op::Flatten(_) | Op::Linear(_) => true,
            Op::Norm(_) | Op::Concat(_) | Op::Multiply(_) | Op::LayerNorm(_) | Op::GroupNorm(_) | Op::LayerScale(_) => {
                self.is_flat(node.inputs[0])
            }
            _ => node.op.reads() == Reads::Elements && self.is_flat(node.inputs[0]),
        }
    }
}

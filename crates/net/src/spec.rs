//! A network as a list of nodes. The catalogue's functions return one.

use std::collections::BTreeSet;

use crate::op::*;

/// Maximum length of a layer's name. Writing and reading have the same limit, so that every written network can be
/// read.
pub const LONGEST_PATH: usize = 250;

/// A tensor: 0 is the network's input, and i + 1 is the output of node i.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(pub usize);

/// Returns the name that PyTorch's modules use for a tensor, or `None` if PyTorch joins the layer's name and the field
/// with a dot. A parameter without its own module has only the layer's name (`encoder.pos_embedding`).
/// `nn.MultiheadAttention` has `in_proj_weight` and `in_proj_bias`.
pub fn torch_name(name: &str) -> Option<String> {
    let (layer, field) = name.rsplit_once('.')?;
    let last = layer.rsplit('.').next()?;
    match last {
        "in_proj" => Some(format!("{layer}_{field}")),
        _ if last == field => Some(layer.into()),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// PyTorch's module path, such as `layer1.0.conv1`. The parameters are `<name>.weight` and so on.
    pub name: String,
    pub op: Op,
    /// The tensors that the node reads: the network's input or outputs of earlier nodes.
    pub inputs: Vec<Id>,
}

/// Auxiliary scores with a loss of their own. They are computed only in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    pub output: Id,
    /// Factor on the loss of these scores in the total loss.
    pub weight: f32,
}

/// A network from an image to one score per class. The last node's output is the scores.
#[derive(Clone, Debug, PartialEq)]
pub struct NetSpec {
    pub name: String,
    pub input: Shape,
    /// The layers in the order of execution.
    pub nodes: Vec<Node>,
    /// Names of the parameters that are not trained, in the whole run or in its first epochs.
    pub frozen: BTreeSet<String>,
    /// Number of groups into which batch normalisation divides a batch in training. Each group is normalised
    /// separately.
    pub bn_groups: usize,
    /// Auxiliary classifiers (Szegedy et al. 2014, arXiv 1409.4842, section 5).
    pub heads: Vec<Head>,
}

/// Names and shapes of a network's tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    /// Parameters in the network's order.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// Running statistics in the same order.
    pub running: Vec<(String, Vec<usize>)>,
}

#[derive(Debug, thiserror::Error)]
#[error("network {net}, layer {layer}: {why}")]
pub struct SpecError {
    pub net: String,
    pub layer: String,
    pub why: String,
}

impl NetSpec {
    /// Creates an empty network for images with this shape.
    pub fn new(name: &str, input: Shape) -> Self {
        Self { name: name.into(), input, nodes: Vec::new(), frozen: BTreeSet::new(), bn_groups: 1, heads: Vec::new() }
    }

    /// Returns the index of the linear layer or convolution that computes the network's scores. If no single layer
    /// computes them, for example because they are a sum over two layers, returns the index of the last linear layer.
    pub fn last_layer(&self) -> Option<usize> {
        let last_linear = || self.nodes.iter().rposition(|node| matches!(node.op, Op::Linear(_)));
        self.scores_layer(self.nodes.len()).or_else(last_linear)
    }

    /// Initialises the scale of the last norm in every residual branch to zero, so that each block starts as the
    /// identity (Goyal et al. 2017, arXiv 1706.02677, section 5.1, as torchvision's `zero_init_residual`).
    pub fn zero_init_residual(&mut self) {
        for at in self.branch_ends() {
            if let Op::Norm(norm) = &mut self.nodes[at].op {
                norm.gamma = 0.0;
            }
        }
    }

    /// Returns the indices of the batch norms that end residual branches. Between such a norm and the sum there may be
    /// stochastic depth and the product of squeeze and excitation. The branch is the first input of a sum, and no other
    /// node reads it.
    pub fn branch_ends(&self) -> Vec<usize> {
        let readers = |id: Id| self.nodes.iter().flat_map(|node| &node.inputs).filter(|input| **input == id).count();
        let last_norm = |branch: Id| {
            let mut id = Some(branch).filter(|id| readers(*id) == 1)?;
            loop {
                let at = id.0.checked_sub(1)?;
                match &self.nodes[at].op {
                    Op::Norm(_) => return Some(at),
                    Op::DropPath(_) | Op::Multiply(_) => id = *self.nodes[at].inputs.first()?,
                    _ => return None,
                }
            }
        };
        let ends = self.nodes.iter().enumerate().filter_map(|(at, node)| match &node.op {
            Op::Norm(norm) if norm.residual => Some(at),
            Op::Add(_) => node.inputs.first().and_then(|branch| last_norm(*branch)),
            _ => None,
        });
        ends.collect()
    }

    pub fn image(&self) -> Id {
        Id(0)
    }

    /// Appends a layer with one input and returns its output.
    pub fn add(&mut self, name: &str, op: impl Into<Op>, input: Id) -> Id {
        self.join(name, op, &[input])
    }

    /// Appends a layer with several inputs and returns its output.
    pub fn join(&mut self, name: &str, op: impl Into<Op>, inputs: &[Id]) -> Id {
        self.nodes.push(Node { name: name.into(), op: op.into(), inputs: inputs.to_vec() });
        Id(self.nodes.len())
    }

    /// Makes the tensor `output` the scores of an auxiliary classifier.
    pub fn head(&mut self, output: Id, weight: f32) {
        self.heads.push(Head { output, weight });
    }

    /// Returns the nodes that read a tensor, with the position among their inputs.
    pub fn readers(&self, tensor: usize) -> Vec<(usize, usize)> {
        let inputs =
            |node: usize| self.nodes[node].inputs.iter().enumerate().map(move |(place, id)| (node, place, id.0));
        let all = (0..self.nodes.len()).flat_map(inputs);
        all.filter(|read| read.2 == tensor).map(|(node, place, _)| (node, place)).collect()
    }

    /// Returns the order of each tensor's elements in a program that stores channels last, beginning with the input.
    /// `shapes` are the shapes of all tensors.
    pub fn feature_orders(&self, shapes: &[Shape]) -> Vec<FeatureOrder> {
        let mut orders = vec![FeatureOrder::Same];
        for node in &self.nodes {
            let inputs: Vec<FeatureOrder> = node.inputs.iter().map(|id| orders[id.0]).collect();
            orders.push(FeatureOrder::of(&node.op, &inputs, shapes[node.inputs[0].0]));
        }
        orders
    }

    /// Returns the tensors with losses: the network's scores, then the auxiliary scores.
    pub fn scores(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.nodes.len()).chain(self.heads.iter().map(|head| head.output.0))
    }

    /// Returns the index of the convolution or linear layer that determines the number of scores: all layers between it
    /// and the tensor `scores` keep the channels. Returns `None` if there is no such layer.
    pub fn scores_layer(&self, scores: usize) -> Option<usize> {
        let mut at = scores.checked_sub(1)?;
        loop {
            let node = &self.nodes[at];
            match &node.op {
                Op::Linear(_) | Op::Conv(_) => return Some(at),
                Op::Activation(_) | Op::Dropout(_) | Op::DropPath(_) | Op::Flatten(_) | Op::Pool(_) | Op::Norm(_) => {}
                _ => return None,
            }
            let [Id(before)] = node.inputs[..] else { return None };
            at = before.checked_sub(1)?;
        }
    }

    /// Returns the names of the layers that compute scores: the last layer with weights before the network's scores,
    /// then the last such layer before each auxiliary classifier's scores.
    pub fn classifiers(&self) -> Vec<&str> {
        self.scores().filter_map(|scores| self.last_with_weights(scores)).map(|node| node.name.as_str()).collect()
    }

    /// Returns the input of the layer that computes the network's scores.
    pub fn features(&self) -> Id {
        self.last_with_weights(self.nodes.len()).and_then(|node| node.inputs.first().copied()).unwrap_or(self.image())
    }

    /// Returns the last layer with weights on the path that leads to a tensor through first inputs.
    fn last_with_weights(&self, mut tensor: usize) -> Option<&Node> {
        while let Some(node) = tensor.checked_sub(1).and_then(|at| self.nodes.get(at)) {
            if node.op.stored().is_some() {
                return Some(node);
            }
            // inputs come earlier, so this loop ends
            tensor = node.inputs.first().filter(|id| id.0 < tensor)?.0;
        }
        None
    }

    /// For each node, returns true if the network's scores depend on it, false if only auxiliary classifiers need it.
    pub fn serving(&self) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len() + 1];
        needed[self.nodes.len()] = true;
        for (i, node) in self.nodes.iter().enumerate().rev() {
            if needed[i + 1] {
                node.inputs.iter().filter(|id| id.0 <= i).for_each(|id| needed[id.0] = true);
            }
        }
        needed.split_off(1)
    }

    /// Returns the logical shapes of all tensors, beginning with the input.
    ///
    /// # Errors
    ///
    /// Returns an error if a layer does not fit its inputs, or if two layers have the same name, because names identify
    /// parameters.
    pub fn shapes(&self) -> Result<Vec<Shape>, SpecError> {
        let mut shapes = vec![self.input];
        let mut names = BTreeSet::new();
        for node in &self.nodes {
            let fail = |why: String| SpecError { net: self.name.clone(), layer: node.name.clone(), why };
            if !names.insert(node.name.as_str()) {
                return Err(fail("another layer has the same name".into()));
            }
            let mut x = Vec::new();
            for id in &node.inputs {
                x.push(*shapes.get(id.0).ok_or_else(|| fail(format!("reads tensor {} before it is computed", id.0)))?);
            }
            shapes.push(node.op.output(&x).map_err(fail)?);
        }
        Ok(shapes)
    }

    /// Returns names and shapes of all tensors that a file stores.
    pub fn tensors(&self) -> Result<Tensors, SpecError> {
        let shapes = self.shapes()?;
        let Tensors { mut parameters, mut running } = Tensors::default();
        for (index, node) in self.nodes.iter().enumerate() {
            let name = |field: &str| format!("{}.{field}", node.name);
            let own = node.op.params(shapes[node.inputs[0].0]).into_iter();
            parameters.extend(own.map(|p| (name(p.field), p.shape)));
            if node.op.statistics_momentum().is_some() {
                let channels = shapes[index + 1].c;
                running.extend(["running_mean", "running_var"].map(|field| (name(field), vec![channels])));
            }
        }
        Ok(Tensors { parameters, running })
    }

    /// Returns the name of a node's parameter.
    pub fn parameter(&self, node: usize, spec: &ParamSpec) -> String {
        format!("{}.{}", self.nodes[node].name, spec.field)
    }

    /// Returns the number of parameter elements in the whole network.
    pub fn param_count(&self) -> Result<usize, SpecError> {
        let shapes = self.shapes()?;
        let each = |n: &Node| n.op.params(shapes[n.inputs[0].0]).iter().map(|p| p.elems()).sum::<usize>();
        Ok(self.nodes.iter().map(each).sum())
    }

    /// Returns the multiply-adds of an image's forward pass, without auxiliary classifiers.
    pub fn macs(&self) -> Result<u64, SpecError> {
        let shapes = self.shapes()?;
        let serving = self.nodes.iter().zip(self.serving()).filter(|(_, serving)| *serving);
        Ok(serving.map(|(n, _)| n.op.macs(shapes[n.inputs[0].0])).sum())
    }
}

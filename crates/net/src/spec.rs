//! A network as a list of nodes. Models are functions that return one.

use std::collections::BTreeSet;

use crate::op::*;

/// Most characters of a layer's name. Networks are made and read within the same limit, so that whatever was written can be read.
pub const LONGEST_PATH: usize = 250;

/// A tensor of the network: 0 is the input, i + 1 the output of node i.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(pub usize);

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// PyTorch's module path, such as `layer1.0.conv1`; parameters are `<name>.weight` and so on.
    pub name: String,
    /// Its computation.
    pub op: Op,
    /// The tensors that it reads; all come earlier.
    pub inputs: Vec<Id>,
}

/// Scores beside those of the network that have a loss of their own while it trains, and are not computed otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// The scores.
    pub output: Id,
    /// Factor of their loss in the sum that is trained.
    pub weight: f32,
}

/// A network from an image to one score per class, which are the output of its last node.
#[derive(Clone, Debug, PartialEq)]
pub struct NetSpec {
    /// Its name in the catalogue.
    pub name: String,
    /// Shape of one image.
    pub input: Shape,
    /// In the order in which they run.
    pub nodes: Vec<Node>,
    /// Names of the parameters that are not trained, as long as the graph says so.
    pub frozen: BTreeSet<String>,
    /// Auxiliary classifiers (Szegedy et al. 2014, arXiv 1409.4842, section 5).
    pub heads: Vec<Head>,
}

/// Names and shapes of a network's tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    /// Parameters, in the order of the network.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// Running statistics, in the same order.
    pub running: Vec<(String, Vec<usize>)>,
}

/// What is wrong with a network.
#[derive(Debug, thiserror::Error)]
#[error("network {net}, layer {layer}: {why}")]
pub struct SpecError {
    /// The network.
    pub net: String,
    /// The layer.
    pub layer: String,
    /// What does not fit.
    pub why: String,
}

impl NetSpec {
    /// An empty network over images of this shape.
    pub fn new(name: &str, input: Shape) -> Self {
        Self { name: name.into(), input, nodes: Vec::new(), frozen: BTreeSet::new(), heads: Vec::new() }
    }

    /// Index of the last node that reads features, whose weights make the scores.
    pub fn last_layer(&self) -> Option<usize> {
        self.nodes.iter().rposition(|node| node.op.reads() == Reads::Features)
    }

    /// Starts the scale of the last norm of every residual branch at zero, so that each block starts as the identity (Goyal et
    /// al. 2017, arXiv 1706.02677, section 5.1; torchvision's `zero_init_residual`).
    pub fn zero_init_residual(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.op.start_branch_at_zero());
    }

    /// The input image.
    pub fn image(&self) -> Id {
        Id(0)
    }

    /// Appends a layer with one input and gives its output.
    pub fn add(&mut self, name: &str, op: impl Into<Op>, input: Id) -> Id {
        self.join(name, op, &[input])
    }

    /// Appends a layer with several inputs and gives its output.
    pub fn join(&mut self, name: &str, op: impl Into<Op>, inputs: &[Id]) -> Id {
        self.nodes.push(Node { name: name.into(), op: op.into(), inputs: inputs.to_vec() });
        Id(self.nodes.len())
    }

    /// Makes these scores an auxiliary classifier.
    pub fn head(&mut self, output: Id, weight: f32) {
        self.heads.push(Head { output, weight });
    }

    /// The nodes that read a tensor, and which of their inputs it is.
    pub fn readers(&self, tensor: usize) -> Vec<(usize, usize)> {
        let inputs =
            |node: usize| self.nodes[node].inputs.iter().enumerate().map(move |(place, id)| (node, place, id.0));
        let all = (0..self.nodes.len()).flat_map(inputs);
        all.filter(|read| read.2 == tensor).map(|(node, place, _)| (node, place)).collect()
    }

    /// In which order each tensor's elements are where channels are last, the input first. `shapes`: those of all tensors.
    pub fn feature_orders(&self, shapes: &[Shape]) -> Vec<FeatureOrder> {
        let mut orders = vec![FeatureOrder::Same];
        for node in &self.nodes {
            let inputs: Vec<FeatureOrder> = node.inputs.iter().map(|id| orders[id.0]).collect();
            orders.push(FeatureOrder::of(&node.op, &inputs, shapes[node.inputs[0].0]));
        }
        orders
    }

    /// The tensors that have losses: the network's scores, then those of its auxiliary classifiers.
    pub fn scores(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.nodes.len()).chain(self.heads.iter().map(|head| head.output.0))
    }

    /// The layers that make scores: for the network's, then for those of auxiliary classifiers, the last one with weights before them.
    pub fn classifiers(&self) -> Vec<&str> {
        self.scores().filter_map(|scores| self.last_with_weights(scores)).map(|node| node.name.as_str()).collect()
    }

    /// What the layer that makes the network's scores reads.
    pub fn features(&self) -> Id {
        self.last_with_weights(self.nodes.len()).and_then(|node| node.inputs.first().copied()).unwrap_or(self.image())
    }

    /// The last layer with weights before a tensor.
    fn last_with_weights(&self, mut tensor: usize) -> Option<&Node> {
        while let Some(node) = tensor.checked_sub(1).and_then(|at| self.nodes.get(at)) {
            if node.op.stored().is_some() {
                return Some(node);
            }
            // inputs come earlier, so this ends
            tensor = node.inputs.first().filter(|id| id.0 < tensor)?.0;
        }
        None
    }

    /// For each node, whether the network's scores depend on it: false for those of auxiliary classifiers alone.
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

    /// Logical shape of every tensor, input first.
    ///
    /// # Errors
    /// For a layer that does not fit its inputs, and for two of one name: parameters are told apart by it.
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
                x.push(*shapes.get(id.0).ok_or_else(|| fail(format!("reads tensor {} before it is made", id.0)))?);
            }
            shapes.push(node.op.output(&x).map_err(fail)?);
        }
        Ok(shapes)
    }

    /// Names and shapes of all tensors that a file holds of it.
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

    /// The name of a parameter of a node.
    pub fn parameter(&self, node: usize, spec: &ParamSpec) -> String {
        format!("{}.{}", self.nodes[node].name, spec.field)
    }

    /// Parameters of the whole network, elements.
    pub fn param_count(&self) -> Result<usize, SpecError> {
        let shapes = self.shapes()?;
        let each = |n: &Node| n.op.params(shapes[n.inputs[0].0]).iter().map(|p| p.elems()).sum::<usize>();
        Ok(self.nodes.iter().map(each).sum())
    }

    /// Multiply-adds of one image's forward pass without auxiliary classifiers.
    pub fn macs(&self) -> Result<u64, SpecError> {
        let shapes = self.shapes()?;
        let serving = self.nodes.iter().zip(self.serving()).filter(|(_, serving)| *serving);
        Ok(serving.map(|(n, _)| n.op.macs(shapes[n.inputs[0].0])).sum())
    }
}

//! Estimates the cost of training a network from its description, without allocating parameters or activations.

use backend::Backend;
use net::Shape;
use net::{NetSpec, Node, SpecError};

use super::graph::BuildError;
use super::memory::{Memory, Need, NodeFacts};
use super::plan::{facts, make_plan};

/// A row of the layer table.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub name: String,
    pub kind: &'static str,
    /// Shape of the output for one sample.
    pub output: Shape,
    /// Number of parameter elements.
    pub parameters: usize,
    /// True if the layer has parameters and all of them are frozen.
    pub frozen: bool,
    /// Multiply-adds in the forward pass of one sample.
    pub macs: u64,
}

/// Returns all layers in execution order.
pub fn layers(net: &NetSpec) -> Result<Vec<Layer>, SpecError> {
    let shapes = net.shapes()?;
    let layer = |(index, node): (usize, &Node)| {
        let x = shapes[node.inputs[0].0];
        let own = node.op.params(x);
        Layer {
            name: node.name.clone(),
            kind: node.op.kind(),
            output: shapes[index + 1],
            parameters: own.iter().map(|p| p.elems()).sum(),
            frozen: !own.is_empty() && own.iter().all(|p| net.frozen.contains(&net.parameter(index, p))),
            macs: node.op.macs(x),
        }
    };
    Ok(net.nodes.iter().enumerate().map(layer).collect())
}

/// Returns the facts about each node for training with batches of `rows` images, the memory plan, and the bytes of work
/// space that the planned operations have allocated.
pub fn memory<B: Backend>(
    backend: &B,
    net: &NetSpec,
    rows: usize,
) -> Result<(Vec<NodeFacts>, Memory, usize), BuildError> {
    let (plan, descs) = make_plan(backend, net, &net.shapes()?, rows, None, true)?;
    let facts: Vec<NodeFacts> = plan.iter().zip(&descs[1..]).map(|(p, d)| facts(backend, p.as_deref(), d)).collect();
    let memory = Memory::train(net, backend.words(&descs[0]), &facts);
    let state = plan.iter().flatten().map(|p| p.state_bytes()).sum();
    Ok((facts, memory, state))
}

/// Returns the bytes for training with batches of `rows` images: parameters, activations, the gradients of both, and
/// work space. The optimizer's slots are not included.
pub fn training<B: Backend>(backend: &B, net: &NetSpec, rows: usize) -> Result<Need, BuildError> {
    let (_, memory, state) = memory(backend, net, rows)?;
    Ok(Need::new(backend.parameter_bytes().saturating_mul(net.param_count()?), true, &memory, state))
}

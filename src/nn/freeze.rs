//! Parameters that are not trained: which layers hold nothing else, and the backward pass that computes no gradient that only they need.

use super::memory::{Memory, Move, NodeFacts, gradient_input, resolve};
use super::spec::NetSpec;
use crate::backend::op::ParamSpec;

/// What a graph does without while its network's [`frozen`](NetSpec::frozen) parameters are not trained.
#[derive(Default)]
pub(super) struct Freeze {
    /// Whether that is so now.
    pub on: bool,
    /// For each node, whether it has parameters and none of them is ever trained while `on`.
    nodes: Vec<bool>,
    /// The backward pass of the meantime: from the last node to the first that a trained parameter needs.
    pub moves: Vec<Move>,
}

impl Freeze {
    /// Of a network for training; it is on if any parameter is frozen.
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], facts: &[NodeFacts], memory: &Memory) -> Self {
        if net.frozen.is_empty() {
            return Self::default();
        }
        let is_frozen = |node: usize, p: &ParamSpec| net.frozen.contains(&net.parameter(node, p));
        let trained: Vec<bool> =
            specs.iter().enumerate().map(|(node, own)| own.iter().any(|p| !is_frozen(node, p))).collect();
        let mut needed = vec![false];
        for (node, trained) in net.nodes.iter().zip(&trained) {
            needed.push(*trained || node.inputs.iter().any(|id| needed[id.0]));
        }
        let nodes = specs.iter().zip(&trained).map(|(own, trained)| !own.is_empty() && !trained).collect();
        Self { on: true, nodes, moves: shortened(net, facts, memory, &needed) }
    }

    /// Whether no parameter of this node is trained now, though it has some.
    pub fn holds(&self, node: usize) -> bool {
        self.on && self.nodes.get(node).is_some_and(|held| *held)
    }
}

/// The moves of backward without those for gradients that nobody needs; `needed`: of each tensor.
fn shortened(net: &NetSpec, facts: &[NodeFacts], memory: &Memory, needed: &[bool]) -> Vec<Move> {
    let real = resolve(net, facts);
    let (mut moves, mut sums) = (Vec::new(), Vec::new());
    for step in &memory.moves {
        let Move::Node { node, dy, second, dx } = *step else {
            // of the gradient of the next node's output
            sums.push(step.clone());
            continue;
        };
        let sums = std::mem::take(&mut sums);
        if needed[node + 1] {
            moves.extend(sums);
            let dx = dx.filter(|_| gradient_input(net, facts, &real, node).is_some_and(|input| needed[input]));
            moves.push(Move::Node { node, dy, second, dx });
        }
    }
    moves
}

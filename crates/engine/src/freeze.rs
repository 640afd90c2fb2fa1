//! Parameters that are not trained: which layers hold nothing else, and the backward pass that computes no gradient that only they need.

use net::NetSpec;
use net::ParamSpec;

use super::memory::{Memory, Move};

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
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], memory: &Memory) -> Self {
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
        Self { on: true, nodes, moves: shortened(net, memory, &needed) }
    }

    /// Whether no parameter of this node is trained now, though it has some.
    pub fn holds(&self, node: usize) -> bool {
        self.on && self.nodes.get(node).is_some_and(|held| *held)
    }
}

/// The moves of backward without those for gradients that nobody needs; `needed`: of each tensor.
fn shortened(net: &NetSpec, memory: &Memory, needed: &[bool]) -> Vec<Move> {
    let of_inputs = |node: usize, dx: &[Option<usize>]| {
        net.nodes[node].inputs.iter().zip(dx).map(|(id, buffer)| buffer.filter(|_| needed[id.0])).collect()
    };
    // values that later moves may read
    let mut read = vec![false; memory.places.len()];
    let mut moves = Vec::new();
    for step in memory.moves.iter().rev() {
        let kept = match *step {
            Move::Add { tensor, .. } => needed[tensor].then(|| step.clone()),
            Move::Recompute { to, .. } => read[to].then(|| step.clone()),
            Move::Node { node, dy, second, ref dx } => {
                needed[node + 1].then(|| Move::Node { node, dy, second, dx: of_inputs(node, dx) })
            }
        };
        if let Some(Move::Node { node, .. } | Move::Recompute { node, .. }) = kept {
            let tensors = net.nodes[node].inputs.iter().map(|id| id.0).chain([node + 1]);
            tensors.for_each(|tensor| read[memory.kept[tensor]] = true);
        }
        moves.extend(kept);
    }
    moves.reverse();
    moves
}

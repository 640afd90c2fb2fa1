//! What a training step moves to and from a device's memory, by kind of operation: what the kernels of a plan read and write.

use backend::{Backend, Traffic};

use super::graph::Graph;
use super::memory::Move;

/// What all operations of a kind move.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Kind of operation.
    pub kind: &'static str,
    /// Bytes.
    pub traffic: Traffic,
}

/// Adds a node's part to that of its kind.
fn add(shares: &mut Vec<Share>, kind: &'static str, traffic: Traffic) {
    match shares.iter_mut().find(|share| share.kind == kind) {
        Some(share) => {
            share.traffic.forward += traffic.forward;
            share.traffic.backward += traffic.backward;
        }
        None => shares.push(Share { kind, traffic }),
    }
}

impl<B: Backend> Graph<B> {
    /// Bytes that forward and backward of the largest batch move, without loss and optimizer; empty where the backend does not count.
    pub fn traffic(&self) -> Vec<Share> {
        let Some(plan) = self.now.plans.values().next_back() else { return Vec::new() };
        let mut shares = Vec::new();
        let moves = if self.freeze.on { &self.freeze.moves } else { &self.memory.moves };
        for step in moves.iter().rev() {
            match *step {
                Move::Node { node, second, .. } => {
                    let counted = plan[node].as_ref().and_then(|op| op.traffic(second.is_some()));
                    let Some(traffic) = counted else { return Vec::new() };
                    add(&mut shares, self.net.nodes[node].op.kind(), traffic);
                }
                Move::Recompute { node, .. } => {
                    let counted = plan[node].as_ref().and_then(|op| op.traffic(false));
                    let Some(Traffic { forward, .. }) = counted else { return Vec::new() };
                    add(&mut shares, self.net.nodes[node].op.kind(), Traffic { forward: 0, backward: forward });
                }
                Move::Add { to, .. } => {
                    let backward = 3 * 4 * self.memory.places[to].len();
                    add(&mut shares, "sums of gradients", Traffic { forward: 0, backward });
                }
            }
        }
        shares
    }
}

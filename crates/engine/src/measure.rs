//! Measures the times of a graph's nodes and the memory traffic of a training step.

use backend::{Backend, Traffic};

use super::graph::Graph;
use super::memory::BackwardStep;
use super::profile::{NodeCost, NodeSpan};

/// Memory traffic of all operations of one kind, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct TrafficShare {
    pub kind: &'static str,
    pub traffic: Traffic,
}

fn add(shares: &mut Vec<TrafficShare>, kind: &'static str, traffic: Traffic) {
    match shares.iter_mut().find(|share| share.kind == kind) {
        Some(share) => {
            share.traffic.forward += traffic.forward;
            share.traffic.backward += traffic.backward;
        }
        None => shares.push(TrafficShare { kind, traffic }),
    }
}

impl<B: Backend> Graph<B> {
    /// If `on` is true, starts timing every node, otherwise ends it. Returns the costs measured so far.
    pub fn profile(&mut self, on: bool) -> Vec<NodeCost> {
        self.pass.clock.profile(on.then_some(self.plan.net.nodes.len()))
    }

    /// If `on` is true, starts recording when each node runs, otherwise ends it.
    pub fn follow(&mut self, on: bool) {
        self.pass.clock.follow(on);
    }

    /// Returns the spans recorded since the last call.
    pub fn take_spans(&mut self) -> Vec<NodeSpan> {
        self.pass.clock.take_spans()
    }

    /// Returns the memory traffic of the forward and backward passes for the largest batch, by kind of operation. Loss
    /// and optimizer are not included. Empty if the backend does not count traffic.
    pub fn traffic(&self) -> Vec<TrafficShare> {
        let (Some(operations), plan) = (self.current_size.largest(), &self.plan) else { return Vec::new() };
        let mut shares = Vec::new();
        for step in plan.backward_steps(self.parameters.frozen).iter().rev() {
            match *step {
                BackwardStep::Node { node, second, .. } => {
                    let counted = operations[node].as_ref().and_then(|op| op.traffic(second.is_some()));
                    let Some(traffic) = counted else { return Vec::new() };
                    add(&mut shares, plan.net.nodes[node].op.kind(), traffic);
                }
                BackwardStep::Recompute { node, .. } => {
                    let counted = operations[node].as_ref().and_then(|op| op.traffic(false));
                    let Some(Traffic { forward, .. }) = counted else { return Vec::new() };
                    add(&mut shares, plan.net.nodes[node].op.kind(), Traffic { forward: 0, backward: forward });
                }
                BackwardStep::Add { to, .. } => {
                    let backward = 3 * 4 * plan.memory.places[to].len();
                    add(&mut shares, "sums of gradients", Traffic { forward: 0, backward });
                }
            }
        }
        shares
    }
}

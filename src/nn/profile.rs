//! How long each node of a graph takes, and when it runs.

use std::time::Instant;

use super::graph::Graph;
use super::span::{NodeSpan, NodeTime};
use crate::backend::Backend;

impl<B: Backend> Graph<B> {
    /// Starts (or, with false, ends) the timing of every node; gives the times so far.
    pub fn profile(&mut self, on: bool) -> Vec<NodeTime> {
        let fresh = on.then(|| vec![NodeTime::default(); self.net.nodes.len()]);
        std::mem::replace(&mut self.profile, fresh).unwrap_or_default()
    }

    /// Starts (or, with false, ends) the recording of when each node runs.
    pub fn follow(&mut self, on: bool) {
        self.spans = on.then(Vec::new);
    }

    /// What was recorded since the last call.
    pub fn take_spans(&mut self) -> Vec<NodeSpan> {
        self.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether anyone wants times.
    pub(super) fn watched(&self) -> bool {
        self.profile.is_some() || self.spans.is_some()
    }

    /// Notes a pass of `node` that began at `start`: forward (`way` 0) or backward (1).
    pub(super) fn clock(&mut self, node: usize, way: usize, start: Option<Instant>) {
        let Some(start) = start else { return };
        let took = start.elapsed();
        if let Some(times) = &mut self.profile {
            times[node][way] += took;
        }
        if let Some(spans) = &mut self.spans {
            spans.push(NodeSpan { node, backward: way == 1, start, took });
        }
    }
}

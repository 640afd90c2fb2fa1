//! Measurements of a graph: when each node runs, how long it takes, and the memory traffic of a training step.

use std::time::{Duration, Instant};

use backend::{Backend, Cores, Error, Regions, Traffic};

use super::graph::Graph;
use super::memory::BackwardStep;

/// Time in one node: forward, then backward.
pub type NodeTime = [Duration; 2];

#[derive(Clone, Copy, Debug, Default)]
pub struct NodeCost {
    pub time: NodeTime,
    /// Number of parallel regions that the node ran, if the device computes with threads of this process.
    pub regions: Regions,
}

/// One forward or backward pass of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeSpan {
    pub node: usize,
    pub backward: bool,
    pub start: Instant,
    pub took: Duration,
}

/// Measures times if they are requested.
#[derive(Default)]
pub(super) struct Clock {
    profile: Option<Vec<NodeCost>>,
    spans: Option<Vec<NodeSpan>>,
    /// Passes with times that the device has not returned yet: node, and 0 for forward or 1 for backward.
    stamped: Vec<(usize, usize)>,
}

impl Clock {
    /// If `nodes` is given, starts timing each of this many nodes, otherwise ends it. Returns the costs measured so
    /// far.
    pub fn profile(&mut self, nodes: Option<usize>) -> Vec<NodeCost> {
        let fresh = nodes.map(|nodes| vec![NodeCost::default(); nodes]);
        std::mem::replace(&mut self.profile, fresh).unwrap_or_default()
    }

    /// If `on` is true, starts recording when each node runs, otherwise ends it.
    pub fn follow(&mut self, on: bool) {
        self.spans = on.then(Vec::new);
    }

    /// Returns the spans recorded since the last call.
    pub fn take_spans(&mut self) -> Vec<NodeSpan> {
        self.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn runs(&self) -> bool {
        self.profile.is_some() || self.spans.is_some()
    }

    /// Returns the start of a node's pass if times are requested. A device with a queue measures with its own clock,
    /// which is read later.
    pub fn start<B: Backend>(&self, backend: &B) -> Result<Option<(Instant, Regions)>, Error> {
        if !self.runs() {
            return Ok(None);
        }
        backend.queue().map_or(Ok(()), |queue| queue.stamp())?;
        let regions = regions(backend);
        Ok(Some((Instant::now(), regions)))
    }

    /// Records that a pass of `node` ended. `way` is 0 for forward and 1 for backward. `begin` is the result of
    /// [`Clock::start`].
    pub fn stop<B: Backend>(
        &mut self,
        backend: &B,
        node: usize,
        way: usize,
        begin: Option<(Instant, Regions)>,
    ) -> Result<(), Error> {
        let Some((start, before)) = begin else { return Ok(()) };
        if let Some(queue) = backend.queue() {
            queue.stamp()?;
            self.stamped.push((node, way));
            return Ok(());
        }
        self.note_time(node, way, [start, Instant::now()]);
        let since = regions(backend) - before;
        if let Some(costs) = &mut self.profile {
            costs[node].regions += since;
        }
        Ok(())
    }

    /// Records the times of the passes that a device with a queue has finished. Waits for the device if there are any.
    pub fn read<B: Backend>(&mut self, backend: &B) -> Result<(), Error> {
        let Some(queue) = backend.queue().filter(|_| !self.stamped.is_empty()) else { return Ok(()) };
        let times = queue.take_stamps()?;
        let stamped = std::mem::take(&mut self.stamped).into_iter().zip(times.as_chunks().0);
        stamped.for_each(|((node, way), between)| self.note_time(node, way, *between));
        Ok(())
    }

    fn note_time(&mut self, node: usize, way: usize, [start, end]: [Instant; 2]) {
        let took = end - start;
        if let Some(costs) = &mut self.profile {
            costs[node].time[way] += took;
        }
        if let Some(spans) = &mut self.spans {
            spans.push(NodeSpan { node, backward: way == 1, start, took });
        }
    }
}

/// Returns the number of parallel regions so far, or 0 if the device does not compute with threads of this process.
fn regions<B: Backend>(backend: &B) -> Regions {
    backend.cores().map(Cores::regions).unwrap_or_default()
}

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

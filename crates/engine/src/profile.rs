//! How long each node of a graph takes and when it runs, and how much a training step reads and writes in the device's memory.

use std::time::{Duration, Instant};

use backend::{Backend, Cores, Error, Regions, Traffic};

use super::graph::Graph;
use super::memory::Move;

/// Time spent in one node, forward and backward.
pub type NodeTime = [Duration; 2];

/// What one node took.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeCost {
    pub time: NodeTime,
    /// Its parallel regions, on a device with threads of this process.
    pub regions: Regions,
}

/// When a node ran.
#[derive(Clone, Copy, Debug)]
pub struct NodeSpan {
    pub node: usize,
    /// Whether it was its backward pass.
    pub backward: bool,
    pub start: Instant,
    pub took: Duration,
}

/// When the nodes of a graph run and how long they take, where anyone wants to know.
#[derive(Default)]
pub(super) struct Clock {
    profile: Option<Vec<NodeCost>>,
    spans: Option<Vec<NodeSpan>>,
    /// Passes of nodes whose times the device has not told yet: node, and 0 forward or 1 backward.
    stamped: Vec<(usize, usize)>,
}

impl<B: Backend> Graph<B> {
    /// Starts (or, with false, ends) the timing of every node; gives the costs so far.
    pub fn profile(&mut self, on: bool) -> Vec<NodeCost> {
        let fresh = on.then(|| vec![NodeCost::default(); self.plan.net.nodes.len()]);
        std::mem::replace(&mut self.pass.clock.profile, fresh).unwrap_or_default()
    }

    /// Starts (or, with false, ends) the recording of when each node runs.
    pub fn follow(&mut self, on: bool) {
        self.pass.clock.spans = on.then(Vec::new);
    }

    /// What was recorded since the last call.
    pub fn take_spans(&mut self) -> Vec<NodeSpan> {
        self.pass.clock.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Clock {
    pub fn runs(&self) -> bool {
        self.profile.is_some() || self.spans.is_some()
    }

    /// The beginning of a node's pass, if anyone wants times. A device with a queue has a clock of its own, which is read later.
    pub fn start<B: Backend>(&self, backend: &B) -> Result<Option<(Instant, Regions)>, Error> {
        if !self.runs() {
            return Ok(None);
        }
        backend.queue().map_or(Ok(()), |queue| queue.stamp())?;
        let regions = regions(backend);
        Ok(Some((Instant::now(), regions)))
    }

    /// Notes a pass of `node` that began at `begin`: forward (`way` 0) or backward (1).
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

    /// Notes the passes that a device with a queue has finished; waits for it if there are any.
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

/// Parallel regions so far; none on a device without threads of this process.
fn regions<B: Backend>(backend: &B) -> Regions {
    backend.cores().map(Cores::regions).unwrap_or_default()
}

/// What all operations of a kind move.
#[derive(Clone, Copy, Debug)]
pub struct TrafficShare {
    pub kind: &'static str,
    /// In bytes.
    pub traffic: Traffic,
}

/// Adds a node's part to that of its kind.
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
    /// Bytes that forward and backward of the largest batch move, without loss and optimizer; empty where the backend does not count.
    pub fn traffic(&self) -> Vec<TrafficShare> {
        let (Some(operations), plan) = (self.now.largest(), &self.plan) else { return Vec::new() };
        let mut shares = Vec::new();
        for step in plan.moves(self.parameters.frozen).iter().rev() {
            match *step {
                Move::Node { node, second, .. } => {
                    let counted = operations[node].as_ref().and_then(|op| op.traffic(second.is_some()));
                    let Some(traffic) = counted else { return Vec::new() };
                    add(&mut shares, plan.net.nodes[node].op.kind(), traffic);
                }
                Move::Recompute { node, .. } => {
                    let counted = operations[node].as_ref().and_then(|op| op.traffic(false));
                    let Some(Traffic { forward, .. }) = counted else { return Vec::new() };
                    add(&mut shares, plan.net.nodes[node].op.kind(), Traffic { forward: 0, backward: forward });
                }
                Move::Add { to, .. } => {
                    let backward = 3 * 4 * plan.memory.places[to].len();
                    add(&mut shares, "sums of gradients", Traffic { forward: 0, backward });
                }
            }
        }
        shares
    }
}

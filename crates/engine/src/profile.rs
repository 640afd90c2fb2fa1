//! How long each node of a graph takes and when it runs, and how much a training step reads and writes in the device's memory.

use std::time::Instant;

use backend::{Backend, Cores, Error, Regions, Traffic};

use super::graph::{Graph, NodeCost, NodeSpan};
use super::memory::Move;

impl<B: Backend> Graph<B> {
    /// Starts (or, with false, ends) the timing of every node; gives the costs so far.
    pub fn profile(&mut self, on: bool) -> Vec<NodeCost> {
        let fresh = on.then(|| vec![NodeCost::default(); self.net.nodes.len()]);
        std::mem::replace(&mut self.profile, fresh).unwrap_or_default()
    }

    /// Bytes of one number of a tensor as it lies in memory: tensor 0 is the network's input, tensor i + 1 the output of node i.
    pub fn bytes_each(&self, tensor: usize) -> usize {
        if self.memory_desc(tensor).bf16 { 2 } else { 4 }
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

    /// The beginning of a node's pass, if anyone wants times. A device with a queue has a clock of its own, which is read later.
    pub(super) fn clock(&self) -> Result<Option<Mark>, Error> {
        if !self.watched() {
            return Ok(None);
        }
        self.backend.queue().map_or(Ok(()), |queue| queue.stamp())?;
        Ok(Some(Mark { regions: self.regions(), start: Instant::now() }))
    }

    /// Notes a pass of `node` that began at `mark`: forward (`way` 0) or backward (1).
    pub(super) fn clocked(&mut self, node: usize, way: usize, mark: Option<Mark>) -> Result<(), Error> {
        let Some(Mark { start, regions }) = mark else { return Ok(()) };
        if let Some(queue) = self.backend.queue() {
            queue.stamp()?;
            self.stamped.push((node, way));
            return Ok(());
        }
        self.note_time(node, way, [start, Instant::now()]);
        let since = self.regions() - regions;
        if let Some(costs) = &mut self.profile {
            costs[node].regions += since;
        }
        Ok(())
    }

    /// Parallel regions so far; none on a device without threads of this process.
    fn regions(&self) -> Regions {
        self.backend.cores().map(Cores::regions).unwrap_or_default()
    }

    /// Notes the passes that a device with a queue has finished; waits for it if there are any.
    pub(super) fn read_clock(&mut self) -> Result<(), Error> {
        let Some(queue) = self.backend.queue().filter(|_| !self.stamped.is_empty()) else { return Ok(()) };
        let times = queue.take_stamps()?;
        for ((node, way), between) in std::mem::take(&mut self.stamped).into_iter().zip(times.as_chunks().0) {
            self.note_time(node, way, *between);
        }
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

/// Where a pass of a node began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub start: Instant,
    pub regions: Regions,
}

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

//! Measurements of nodes: when each one runs, and how long it takes.

use std::time::{Duration, Instant};

use backend::{Backend, Cores, Error, Regions};

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

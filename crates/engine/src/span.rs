//! Times of the nodes of a graph.

use std::time::{Duration, Instant};

use backend::Regions;

/// Time spent in one node, forward and backward.
pub type NodeTime = [Duration; 2];

/// What one node took.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeCost {
    /// Its time.
    pub time: NodeTime,
    /// Its parallel regions, on a device with threads of this process.
    pub regions: Regions,
}

/// Where a pass of a node began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub start: Instant,
    pub regions: Regions,
}

/// When a node ran.
#[derive(Clone, Copy, Debug)]
pub struct NodeSpan {
    /// Which.
    pub node: usize,
    /// Its backward pass.
    pub backward: bool,
    /// Its beginning.
    pub start: Instant,
    /// How long it took.
    pub took: Duration,
}

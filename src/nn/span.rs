//! Times of the nodes of a graph.

use std::time::{Duration, Instant};

/// Time spent in one node, forward and backward.
pub type NodeTime = [Duration; 2];

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

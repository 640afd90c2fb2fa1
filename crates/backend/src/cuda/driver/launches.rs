//! How much the GPU is given to do: kernels, copies and fills, each of which costs it a few microseconds however small it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudarc::driver::sys::{self, CUgraphNodeType as Node};

use super::status::driver;
use crate::Error;

/// Those that were enqueued on a GPU so far. A call of cuDNN or cuBLASLt counts as one; in a recorded pass each of their kernels does.
#[derive(Default)]
pub struct Launches {
    made: AtomicU64,
    recording: AtomicBool,
}

impl Launches {
    /// So many more were enqueued; nothing that is only recorded is counted.
    pub fn add(&self, launches: u64) {
        if !self.recording.load(Ordering::Relaxed) {
            self.made.fetch_add(launches, Ordering::Relaxed);
        }
    }

    /// Whether calls are recorded from now on instead of done.
    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// All until now.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

/// The kernels, copies and fills of a recorded pass; events, which cost next to nothing, are left out.
///
/// # Safety
/// The graph must be alive.
pub unsafe fn of_graph(graph: sys::CUgraph) -> Result<u64, Error> {
    let mut count = 0;
    // SAFETY: the graph lives; without an array the call only counts.
    let status = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) };
    driver(status, "cuGraphGetNodes", "a recorded pass")?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the array has room for `count` nodes.
    let status = unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) };
    driver(status, "cuGraphGetNodes", "a recorded pass")?;
    let mut launches = 0;
    for node in nodes.into_iter().take(count) {
        // the number that it is in C: a newer driver may have types that this crate does not know
        let mut kind = Node::CU_GRAPH_NODE_TYPE_EMPTY as u32;
        // SAFETY: a node of the living graph, and a place for its type, which is as wide.
        let status = unsafe { sys::cuGraphNodeGetType(node, (&raw mut kind).cast()) };
        driver(status, "cuGraphNodeGetType", "a recorded pass")?;
        let counts =
            [Node::CU_GRAPH_NODE_TYPE_KERNEL, Node::CU_GRAPH_NODE_TYPE_MEMCPY, Node::CU_GRAPH_NODE_TYPE_MEMSET];
        launches += u64::from(counts.into_iter().any(|counted| counted as u32 == kind));
    }
    Ok(launches)
}

//! Networks: their description, their parameters, and the static graph that runs them forward and backward on a backend.

mod accumulate;
pub mod graph;
pub mod init;
pub mod memory;
pub mod params;
mod pass;
mod plan;
mod profile;
pub mod spec;
mod state;
pub mod table;

pub use accumulate::{Gather, MicroBatch};
pub use graph::{Batch, Graph, Loss, Purpose};
pub use params::Param;
pub use spec::{Id, NetSpec};

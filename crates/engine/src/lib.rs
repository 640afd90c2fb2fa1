//! Runs networks on a backend: planning, parameters, forward and backward passes, optimizers and learning-rate
//! schedules.

mod accumulate;
pub mod estimate;
pub mod graph;
pub mod init;
mod measure;
pub mod memory;
pub mod optim;
pub mod params;
mod pass;
mod plan;
mod profile;
mod replay;
mod request;
mod sizes;
mod soft;
pub mod table;
mod tensors;

pub use accumulate::{Gather, MicroBatch};
pub use graph::{Graph, Purpose};
pub use measure::TrafficShare;
pub use params::{NormPlace, Param};
pub use profile::{NodeCost, NodeSpan, NodeTime};
pub use request::{Batch, Loss, Ready};

//! Networks: their description, their parameters, and the static graph that runs them forward and backward on a backend.

mod accumulate;
pub mod estimate;
mod freeze;
mod fusions;
pub mod graph;
pub mod init;
pub mod memory;
mod moves;
mod norm_place;
pub mod optim;
mod packing;
pub mod params;
mod pass;
mod plan;
mod profile;
mod replay;
mod shortcuts;
mod sizes;
mod soft;
mod span;
mod state;
pub mod table;
mod tensors;
mod then;
mod traffic;

pub use accumulate::{Gather, MicroBatch};
pub use graph::{Batch, Graph, Loss, Purpose};
pub use norm_place::NormPlace;
pub use params::Param;
pub use span::{NodeCost, NodeTime};
pub use then::Then;
pub use traffic::Share;

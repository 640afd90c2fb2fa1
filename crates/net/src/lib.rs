//! The description of a network: its layers ([`op`]), their order ([`spec`]), the catalogue of known networks
//! ([`models`]) and the text format `net.toml`. This crate does not run networks and does not depend on devices.

pub mod models;
pub mod net_toml;
pub mod op;
pub mod spec;

pub use op::*;
pub use spec::{Head, Id, LONGEST_PATH, NetSpec, Node, SpecError, Tensors, torch_name};

//! What a network is: its layers ([`op`]), their order ([`spec`]), the catalogue of known networks ([`models`]) and the text form
//! `net.toml`. Nothing here runs a network or knows a device.

pub mod models;
pub mod net_toml;
pub mod op;
pub mod spec;

pub use op::*;
pub use spec::{Head, Id, LONGEST_PATH, NetSpec, Node, SpecError, Tensors};

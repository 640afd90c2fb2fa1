//! Custom networks as TOML files. A file has a list of nodes, each with an operation, its inputs and its numbers. It
//! can also have blocks of nodes with parameters, which may be repeated.
//!
//! - `definition`: a file that was read, the network built from it for given images and classes, and all operations by
//!   their names
//! - `file`: the parts of a file before its nodes are interpreted
//! - `write`: writes any network as such a file
//! - `expand`: expands blocks with their parameters and repetitions, and explains references to later nodes
//!
//! The file of an operation in [`op`](crate::op) has its names and keys. `op::toml_keys` reads or writes the keys of a
//! node, and `op::toml_value` is TOML with the line of every value.

mod definition;
mod expand;
mod file;
#[cfg(test)]
mod tests;
mod write;

pub use crate::op::toml_value::Error;
pub use definition::{Definition, set_classes};
pub use write::{Classes, write};

//! Custom networks as TOML files. A file has a list of nodes, each with an operation, its inputs and its numbers. It
//! can also have blocks of nodes with parameters, which may be repeated.
//!
//! - `definition`: a file that was read, and the network built from it for given images and classes
//! - `file`: the parts of a file before its nodes are interpreted
//! - `write`: writes any network as such a file
//! - `ops`: all operations by their names. The file of an operation in [`op`](crate::op) has its names and keys
//! - `keys`: reads or writes the keys of a node, and their types
//! - `expand`: expands blocks with their parameters and repetitions, and explains references to later nodes
//! - `value`: TOML with the line of every value, and errors that name these lines

mod definition;
mod expand;
mod file;
mod keys;
mod ops;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub(crate) use keys::{JOIN_CURE, Keys, TomlOp};

pub use definition::{Definition, scores_layer, set_classes};
pub use value::Error;
pub use write::{Classes, write};

//! Networks of one's own, as TOML files: a list of nodes, each with an operation, the nodes that it reads, and its numbers; blocks of nodes
//! with parameters, which may repeat.
//!
//! - `definition`: a file that was read, from which a network is built for images and classes, and the layer that makes the scores;
//! - `file`: the parts of a file, before its nodes are looked into;
//! - `write`: any network as such a file, with every node and every number;
//! - `ops`: the words and keys of each operation, for the reader and the writer;
//! - `keys`: the keys of a node on their way in or out, and their types;
//! - `expand`: blocks, their parameters and repeats written out, and references to later nodes;
//! - `value`: TOML with the line of every value, and the errors that name these lines.

mod definition;
mod expand;
mod file;
mod keys;
mod ops;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use definition::{Definition, scores_layer, set_classes};
pub use value::Error;
pub use write::{Classes, write};

//! Networks of one's own, as TOML files: a list of nodes, each with an operation, the nodes that it reads, and its numbers; blocks of nodes
//! with parameters, which may repeat.
//!
//! - [`Definition`]: a file that was read, from which a network is built for images and classes;
//! - `write`: any network as such a file, with every node and every number;
//! - `ops`: the words of each operation, one family a file: the reader and the writer go by one description;
//! - `value`: TOML with the lines that things stand in; `expand`: blocks and repeats; `fill`: parameters of blocks; `order`: references to
//!   later nodes; `words`: types of keys; `keys`: the keys of a node on their way in or out;
//! - `classes`: the layer that makes the scores.

mod classes;
mod definition;
mod error;
mod expand;
mod file;
mod fill;
mod keys;
mod ops;
mod order;
#[cfg(test)]
mod tests;
mod value;
mod words;
mod write;

pub use classes::{scores_layer, set_classes};
pub use definition::Definition;
pub use error::Error;
pub use write::{Classes, write};

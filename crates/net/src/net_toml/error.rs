//! What is wrong with a file of a network, and where.

use loaders::printable;

/// An error with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{why}", node_text(.node))]
pub struct Error {
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The node, by its full name; empty for what is of no node.
    pub node: String,
    /// What is wrong, and what to try.
    pub why: String,
}

fn node_text(node: &str) -> String {
    if node.is_empty() { String::new() } else { format!("node {node}: ") }
}

/// What is wrong in a line, as long as the file's name is not at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub line: usize,
    pub node: String,
    pub why: String,
}

impl Fault {
    /// In a line that is of no node.
    pub fn new(line: usize, why: impl Into<String>) -> Self {
        Self { line, node: String::new(), why: why.into() }
    }

    /// In a node.
    pub fn of_node(line: usize, node: &str, why: impl Into<String>) -> Self {
        Self { line, node: node.into(), why: why.into() }
    }

    /// The same, with the node that it is of, unless that is known.
    pub fn in_node(self, node: &str) -> Self {
        if self.node.is_empty() { Self { node: node.into(), ..self } } else { self }
    }

    pub fn in_file(self, file: &str) -> Error {
        let Self { line, node, why } = self;
        // both strings may contain names from the file
        Error { file: file.into(), line, node: printable(&node).into(), why: printable(&why).into() }
    }
}

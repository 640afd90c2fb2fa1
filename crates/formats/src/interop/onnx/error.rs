//! Why an ONNX file is not taken.

use std::path::PathBuf;

use loaders::why;

/// An error of a file. Each text names the node or the tensor, and what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot read {}: {}", .path.display(), why(.path, .source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// It is no ONNX model, or one of a kind that is not read.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Nodes that have no counterpart here.
    #[error("{}: {}", .path.display(), first_of(.nodes))]
    Nodes {
        /// The file.
        path: PathBuf,
        /// Each as `node NAME (OP): why`; at least one.
        nodes: Vec<String>,
    },
}

fn first_of(nodes: &[String]) -> String {
    let first = nodes.first().map_or("", String::as_str);
    match nodes.len() {
        0 | 1 => first.to_string(),
        n => format!("{first}; {} more cannot be taken over: `trireme models FILE` lists all", n - 1),
    }
}

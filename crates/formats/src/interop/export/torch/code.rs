//! The code of one layer.

use crate::interop::export::network::Turn;

/// A layer in Python.
pub(crate) struct Code {
    /// Its module, of a layer with weights.
    pub module: Option<String>,
    /// A parameter of its own, which has no module.
    pub parameter: Option<String>,
    /// Its output, in terms of the variables of its inputs.
    pub value: String,
}

impl Code {
    /// Code without a module or a parameter.
    pub fn plain(value: String) -> Self {
        Self { module: None, parameter: None, value }
    }

    /// Code with a module.
    pub fn module(module: String, value: String) -> Self {
        Self { module: Some(module), parameter: None, value }
    }
}

/// A variable in the form that a layer reads, or that the network ends in.
pub(super) fn turned(turn: Option<Turn>, variable: String) -> String {
    match turn {
        None => variable,
        Some(Turn::Flatten) => format!("torch.flatten({variable}, 1)"),
        Some(Turn::Image) => format!("{variable}[:, :, None, None]"),
    }
}

/// A module whose features are the last dimension, of images.
pub(crate) fn over_channels(path: &str, a: &str) -> String {
    format!("{path}({a}.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)")
}

/// The same value, or a ReLU of it.
pub(crate) fn with_relu(value: String, relu: bool) -> String {
    if relu { format!("F.relu({value})") } else { value }
}

/// A number that is the same in both directions, or both.
pub(crate) fn pair([a, b]: [usize; 2]) -> String {
    if a == b { a.to_string() } else { format!("({a}, {b})") }
}

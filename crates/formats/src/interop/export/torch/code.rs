//! Python code of one layer, and helpers that put expressions together.

use crate::interop::export::network::Turn;

pub(crate) struct Code {
    /// The expression that creates the layer's module, if it has one.
    pub module: Option<String>,
    /// The expression that creates the layer's parameter, if the parameter is not part of a module.
    pub parameter: Option<String>,
    /// The expression that computes the layer's output from the variables of its inputs.
    pub value: String,
}

impl Code {
    pub fn plain(value: String) -> Self {
        Self { module: None, parameter: None, value }
    }

    pub fn module(module: String, value: String) -> Self {
        Self { module: Some(module), parameter: None, value }
    }
}

/// Returns an expression that converts a variable to the number of dimensions that a layer reads or the output has.
pub(super) fn turned(turn: Option<Turn>, variable: String) -> String {
    match turn {
        None => variable,
        Some(Turn::Flatten) => format!("torch.flatten({variable}, 1)"),
        Some(Turn::Image) => format!("{variable}[:, :, None, None]"),
    }
}

/// Returns an expression that applies a module over the channels of an image. The module expects channels last.
pub(crate) fn over_channels(path: &str, a: &str) -> String {
    format!("{path}({a}.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)")
}

/// Applies a ReLU to an expression if `relu` is set.
pub(crate) fn with_relu(value: String, relu: bool) -> String {
    if relu { format!("F.relu({value})") } else { value }
}

/// Returns a single number if both are equal, otherwise a tuple.
pub(crate) fn pair([a, b]: [usize; 2]) -> String {
    if a == b { a.to_string() } else { format!("({a}, {b})") }
}

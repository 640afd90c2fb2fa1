//! Python code of one layer, and helpers that put expressions together.

use super::module::path;
use crate::interop::export::network::{Layer, Turn};

pub(crate) struct Code {
    /// The expression that creates the layer's module, if it has one.
    pub module: Option<String>,
    /// Parameters that the layer needs but that are not inside a module that it creates: the tensor's name in the
    /// layer, and the expression that creates the parameter.
    pub parameters: Vec<(&'static str, String)>,
    /// The expression that computes the layer's output from the variables of its inputs.
    pub value: String,
}

impl Code {
    pub fn plain(value: String) -> Self {
        Self { module: None, parameters: Vec::new(), value }
    }

    pub fn module(module: String, value: String) -> Self {
        Self { module: Some(module), parameters: Vec::new(), value }
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

/// Returns the module that has the layer's parameter `field`, and the parameter's name in this module. Both are Python
/// code.
pub(crate) fn parameter(layer: &Layer<'_>, field: &str) -> Result<(String, String), String> {
    let name = format!("{}.{field}", layer.node.name);
    let name = net::torch_name(&name).unwrap_or(name);
    match name.rsplit_once('.') {
        Some((group, field)) => Ok((path(group)?, field.into())),
        None => Ok(("self".into(), name)),
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

//! ONNX operators that are not layers of trireme. The operators that are layers have their handlers in `interop/ops`.
//! An operator without a handler is not supported, and the error names it.

pub(crate) mod element;
mod pass;
mod reshape;
pub(crate) mod size;
mod window;

use super::build::{Handler, Operator};
use super::graph::Node;
use crate::interop::ops::onnx_operators;

fn all() -> impl Iterator<Item = &'static Operator> {
    let others = [element::OPERATORS, pass::OPERATORS, reshape::OPERATORS, size::OPERATORS, window::OPERATORS];
    onnx_operators().chain(others.into_iter().flatten())
}

fn find(op: &str) -> Option<&'static Operator> {
    all().find(|(name, ..)| *name == op)
}

/// Returns the handler of an operator.
pub(super) fn handler(op: &str) -> Option<Handler> {
    find(op).map(|(.., handler)| *handler)
}

/// Checks that the handler reads all inputs of the node. Omitted inputs at the end do not count.
pub(super) fn check_inputs(node: &Node<'_>) -> Result<(), String> {
    let given = node.inputs.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    let most = find(node.op).map_or(0, |(_, most, _)| *most);
    match (given <= most, node.op) {
        (true, _) => Ok(()),
        (false, "Max" | "Min") => {
            Err(format!("it has {given} inputs, but only two are supported. Write it as one {} after another", node.op))
        }
        _ => Err(format!("it has {given} inputs, expected at most {most}. Check the file with onnx.checker")),
    }
}

/// Returns the names of all supported operators in alphabetical order.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = all().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    names
}

//! What each of ONNX's operators becomes; one family a file. An operator without a line in these lists is not supported, and is said so by
//! name.

mod conv;
mod element;
mod norm;
mod pass;
mod pool;
mod reshape;

use super::build::{Handler, Operator};
use super::graph::Node;

/// All families.
const FAMILIES: &[&[Operator]] = &[
    conv::OPERATORS,
    element::OPERATORS,
    conv::FULL_OPERATORS,
    reshape::JOIN_OPERATORS,
    norm::OPERATORS,
    pass::OPERATORS,
    pool::OPERATORS,
    reshape::OPERATORS,
    reshape::SIZES_OPERATORS,
    reshape::SPLIT_OPERATORS,
    pool::WINDOW_OPERATORS,
];

fn find(op: &str) -> Option<&'static Operator> {
    FAMILIES.iter().copied().flatten().find(|(name, ..)| *name == op)
}

/// What an operator of this name becomes.
pub(super) fn handler(op: &str) -> Option<Handler> {
    find(op).map(|(.., handler)| *handler)
}

/// Refuses inputs that its operator would not look at; those that are left out at the end are none.
pub(super) fn check_inputs(node: &Node<'_>) -> Result<(), String> {
    let given = node.inputs.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    let most = find(node.op).map_or(0, |(_, most, _)| *most);
    match (given <= most, node.op) {
        (true, _) => Ok(()),
        (false, "Max" | "Min") => {
            Err(format!("of {given} inputs; two are supported: write it as one {} after another", node.op))
        }
        _ => Err(format!(
            "it has {given} inputs, and {most} at most are understood; onnx.checker says whether the file is valid"
        )),
    }
}

/// Names of all operators that are known.
pub(super) fn names() -> Vec<&'static str> {
    FAMILIES.iter().copied().flatten().map(|(name, ..)| *name).collect()
}

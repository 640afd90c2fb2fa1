//! What each of ONNX's operators becomes; one family a file. An operator without a line in these lists is not supported, and is said so by
//! name.

mod conv;
mod element;
mod full;
mod join;
mod norm;
mod pass;
mod pool;
mod reshape;
mod sizes;
mod window;

use super::handler::{Handler, Operator};

/// All families.
const FAMILIES: &[&[Operator]] = &[
    conv::OPERATORS,
    element::OPERATORS,
    full::OPERATORS,
    join::OPERATORS,
    norm::OPERATORS,
    pass::OPERATORS,
    pool::OPERATORS,
    reshape::OPERATORS,
    sizes::OPERATORS,
    window::OPERATORS,
];

/// What an operator of this name becomes.
pub(super) fn handler(op: &str) -> Option<Handler> {
    FAMILIES.iter().copied().flatten().find(|(name, _)| *name == op).map(|(_, handler)| *handler)
}

/// Names of all operators that are known.
pub(super) fn names() -> Vec<&'static str> {
    FAMILIES.iter().copied().flatten().map(|(name, _)| *name).collect()
}

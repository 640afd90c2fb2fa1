//! Operations on several inputs that have no numbers.

use crate::{Add, Concat, Multiply};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["add", "concat", "multiply"],
    plain: |word| match word {
        "add" => Add.into(),
        "concat" => Concat.into(),
        _ => Multiply.into(),
    },
    keys: |_, _| {},
    cure: "write inputs = [\"one\", \"other\"]; where shapes differ, a conv of kernel 1 with the other's channels and stride, or a \
           shortcut, makes them equal",
};

//! All operations of a `net.toml`. The file of each operation has its names and keys.

use crate::op::toml_keys::{Keys, TomlOp};
use crate::{Op, for_each_op};

/// An operation as a value, see [`TomlOp`].
pub(super) struct Operation {
    pub words: &'static [&'static str],
    pub cure: &'static str,
    pub plain: fn(&str) -> Op,
}

macro_rules! operations {
    ($($file:ident $name:ident,)*) => {
        const OPERATIONS: &[Operation] = &[$(Operation {
            words: crate::$name::WORDS,
            cure: crate::$name::CURE,
            plain: |word| crate::$name::plain(word).into(),
        },)*];

        /// Connects the keys with the operation's fields.
        pub(super) fn keys(op: &mut Op, keys: &mut Keys<'_>) {
            match op { $(Op::$name(op) => op.keys(keys),)* }
        }
    };
}
for_each_op!(operations);

pub(super) fn operation(word: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.words.contains(&word))
}

pub(super) fn words() -> Vec<&'static str> {
    OPERATIONS.iter().flat_map(|operation| operation.words).copied().collect()
}

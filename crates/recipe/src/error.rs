//! Errors of a recipe, and where each key was given: in the file or in a `--set`.

use std::collections::BTreeMap;
use std::path::Path;

use loaders::why;

/// A recipe that cannot be used. Every message names the file or the `--set`, the key, and what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the recipe {file}: {}", why(Path::new(file), source))]
    Read {
        /// Path as given.
        file: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// There is no such file.
    #[error("cannot read the recipe {file}: there is no such file{cure}")]
    Absent {
        /// Path as given.
        file: String,
        /// `; did you mean ...?`, or the recipes there are.
        cure: String,
    },
    /// The file is not TOML.
    #[error("{file}: not valid TOML: {why}")]
    Syntax {
        /// Path as given.
        file: String,
        /// Line, column, expectation.
        why: String,
    },
    /// A key that no recipe has.
    #[error("{place}: unknown key{hint}")]
    UnknownKey {
        /// File and key, or the `--set`.
        place: String,
        /// `; did you mean ...?`, or the keys there are.
        hint: String,
    },
    /// A value of the wrong type.
    #[error("{place}: expected {expected}, got {got}")]
    Type {
        /// File and key, or the `--set`.
        place: String,
        /// What the key takes.
        expected: String,
        /// The value in the recipe.
        got: String,
    },
    /// A key that every recipe needs.
    #[error("{place}: missing; it is {expected}: {doc}")]
    Missing {
        /// File and key.
        place: String,
        /// What the key takes.
        expected: String,
        /// Meaning of the key.
        doc: &'static str,
    },
    /// A value of the right type that is not allowed.
    #[error("{place}: {why}")]
    Value {
        /// File and key, or the `--set`.
        place: String,
        /// Expected, got, what to try.
        why: String,
    },
    /// A `--set` that is not `key=value`.
    #[error("--set {set}: expected key=value, as --set schedule.base_lr=0.05")]
    Set {
        /// The argument as given.
        set: String,
    },
    /// The recipe has no form in TOML.
    #[error("cannot write the recipe as TOML: {why}")]
    Write {
        /// Why not.
        why: String,
    },
}

/// Where each key of a recipe was given.
pub(super) struct Origin<'a> {
    pub file: &'a str,
    /// Path of a key -> the `--set` that gave it.
    pub sets: BTreeMap<String, String>,
}

impl Origin<'_> {
    /// `recipes/a.toml: schedule.gamma`, or `--set schedule.gamma=x`.
    pub fn of(&self, key: &str) -> String {
        match self.sets.get(key) {
            Some(set) => format!("--set {set}"),
            None => format!("{}: {key}", self.file),
        }
    }
}

//! Errors of a recipe, and the origin of each key: the file or a `--set`.

use std::collections::BTreeMap;
use std::path::Path;

use loaders::why;

/// A recipe that cannot be used. Each message names the file or the `--set`, the key, and what to write instead. `file`
/// is the path as given by the user. `place` is the file and the key, or the `--set` argument.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the recipe {file}: {}", why(Path::new(file), source))]
    Read { file: String, source: std::io::Error },
    #[error("cannot read the recipe {file}: there is no such file{cure}")]
    Absent {
        file: String,
        /// `; did you mean ...?`, or a list of existing recipes.
        cure: String,
    },
    /// The file is not valid TOML.
    #[error("{file}: not valid TOML: {why}")]
    Syntax {
        file: String,
        /// Line, column and expected syntax.
        why: String,
    },
    #[error("{place}: unknown key{hint}")]
    UnknownKey {
        place: String,
        /// `; did you mean ...?`, or where to find the list of keys.
        hint: String,
    },
    /// A required key is missing, or a value has the wrong type or is not allowed.
    #[error("{place}: {why}")]
    Value {
        place: String,
        /// Expected and actual value, and a suggestion.
        why: String,
    },
    /// A `--set` argument without the form `key=value`.
    #[error("--set {set}: expected key=value, such as --set schedule.base_lr=0.05")]
    Set {
        /// The argument as given by the user.
        set: String,
    },
    /// The recipe cannot be written as TOML.
    #[error("cannot write the recipe as TOML: {why}")]
    Write { why: String },
}

/// A key of a recipe, and the problem with its value.
pub(super) type KeyFault = (&'static str, String);

/// Rejects the first of these keys that is given. They have no effect without the setting `needed`. `cure` is what to
/// set.
pub(super) fn refuse_given(keys: &[(&'static str, bool)], needed: &str, cure: &str) -> Result<(), KeyFault> {
    match keys.iter().find(|(_, given)| *given) {
        Some((key, _)) => Err((key, format!("has no meaning without {needed}; set {cure}, or remove this key"))),
        None => Ok(()),
    }
}

/// Where the keys of a recipe were given: in a file, some of them overwritten by `--set`.
pub(super) struct Origin<'a> {
    pub file: &'a str,
    /// Maps the path of a key to the `--set` argument that gave it.
    pub sets: BTreeMap<String, String>,
}

impl Origin<'_> {
    /// Returns where a key was given, for messages, like `recipes/a.toml: schedule.gamma` or `--set schedule.gamma=x`.
    pub fn of(&self, key: &str) -> String {
        match self.sets.get(key) {
            Some(set) => format!("--set {set}"),
            None => format!("{}: {key}", self.file),
        }
    }
}

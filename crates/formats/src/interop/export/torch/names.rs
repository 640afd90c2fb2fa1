//! Names in the Python file: paths of modules, and variables for tensors.

use net::NetSpec;

/// Words of Python.
const WORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
    "False", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "None", "nonlocal", "not", "or",
    "pass", "raise", "return", "True", "try", "while", "with", "yield",
];

/// Names that a module has already.
const TAKEN: &[&str] = &[
    "apply",
    "bfloat16",
    "buffers",
    "children",
    "compile",
    "cpu",
    "cuda",
    "double",
    "eval",
    "float",
    "forward",
    "half",
    "modules",
    "parameters",
    "to",
    "train",
    "training",
    "type",
];

/// Names that a dictionary of modules has already.
const TAKEN_BELOW: &[&str] = &["clear", "items", "keys", "pop", "update", "values"];

/// Whether a word is a name in Python.
pub(super) fn is_name(word: &str) -> bool {
    let begins = word.starts_with(|c: char| c == '_' || c.is_alphabetic());
    begins && word.chars().all(|c| c == '_' || c.is_alphanumeric()) && !WORDS.contains(&word)
}

/// Where a module is found: `layer1.0.conv1` is `self.layer1["0"]["conv1"]`.
///
/// # Errors
/// For a name whose first part is no name in Python, or with a part that every module, or every dictionary of modules, has.
pub(super) fn path(name: &str) -> Result<String, String> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let proper = first.chars().all(letters) && first.starts_with(|c: char| c.is_ascii_alphabetic());
    if !proper || WORDS.contains(&first) || TAKEN.contains(&first) {
        return Err(format!("its name begins with \"{first}\", which Python does not take for a layer; rename it"));
    }
    let keys = rest.into_iter().flat_map(|rest| rest.split('.'));
    let free = |key| match key {
        "" => Err("an empty part in its name; rename it".to_string()),
        _ if TAKEN.contains(&key) || TAKEN_BELOW.contains(&key) => {
            Err(format!("\"{key}\" in its name is something that PyTorch's modules have already; rename it"))
        }
        _ => Ok(key),
    };
    keys.map(free).try_fold(format!("self.{first}"), |path, key| key.map(|key| format!("{path}[{}]", quoted(key))))
}

/// A text in Python.
pub(super) fn quoted(text: &str) -> String {
    // JSON's escapes are Python's
    serde_json::Value::from(text).to_string()
}

/// Names of variables, in the order in which they are taken.
const VARIABLES: &[&str] = &["x", "y", "z", "u", "v", "w"];

/// Gives each tensor a variable that no tensor has which is still needed.
pub(super) struct Variables {
    /// Of each tensor, the last layer that reads it.
    last: Vec<usize>,
    names: Vec<String>,
    /// The tensor in each variable.
    held: Vec<Option<usize>>,
}

impl Variables {
    /// For the tensors of a network; the input is in the first variable.
    pub fn new(net: &NetSpec) -> Self {
        let mut last = vec![0; net.nodes.len() + 1];
        for (index, node) in net.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|id| last[id.0] = index);
        }
        Self { last, names: vec![VARIABLES[0].into()], held: vec![Some(0)] }
    }

    /// The variable of a tensor that has one.
    pub fn of(&self, tensor: usize) -> String {
        self.names[tensor].clone()
    }

    /// The variable of the output of layer `index`, which may be that of an input that is read for the last time.
    pub fn next(&mut self, index: usize) -> String {
        for held in &mut self.held {
            if held.is_some_and(|tensor| self.last[tensor] <= index) {
                *held = None;
            }
        }
        let free = self.held.iter().position(Option::is_none).unwrap_or(self.held.len());
        if free == self.held.len() {
            self.held.push(None);
        }
        self.held[free] = Some(index + 1);
        let name = VARIABLES.get(free).map_or_else(|| format!("t{free}"), |name| name.to_string());
        self.names.push(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_dots_are_paths() {
        assert_eq!(path("fc").unwrap(), "self.fc");
        assert_eq!(path("layer1.0.conv1").unwrap(), "self.layer1[\"0\"][\"conv1\"]");
        // dictionaries of modules have values, and keys may be words of Python
        assert_eq!(path("a.in").unwrap(), "self.a[\"in\"]");
        assert_eq!(path("values.0").unwrap(), "self.values[\"0\"]");
        for bad in ["", "0.conv", "train", "a-b", "class.0", "a..b", "b.values", "b.keys.0", "b.0.pop", "b.train"] {
            assert!(path(bad).unwrap_err().contains("rename it"), "{bad}");
        }
    }
}

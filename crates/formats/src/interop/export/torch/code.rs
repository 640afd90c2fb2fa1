//! Python code of one layer, and helpers that put expressions together.

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

/// Returns the expression of the layer's parameter `field`.
pub(crate) fn parameter(layer: &Layer<'_>, field: &str) -> Result<String, String> {
    parameter_place(layer, field).map(|(module, name)| format!("{module}.{name}"))
}

/// Returns the module that has the layer's parameter `field`, and the parameter's name in this module. Both are Python
/// code.
pub(super) fn parameter_place(layer: &Layer<'_>, field: &str) -> Result<(String, String), String> {
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

const WORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
    "False", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "None", "nonlocal", "not", "or",
    "pass", "raise", "return", "True", "try", "while", "with", "yield",
];

/// Attributes that every `nn.Module` has. No module of a network may have one of these names.
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

/// Additional attributes of `nn.ModuleDict`.
const TAKEN_BELOW: &[&str] = &["clear", "items", "keys", "pop", "update", "values"];

/// Returns true if a word is a valid identifier in Python.
pub(super) fn is_name(word: &str) -> bool {
    let begins = word.starts_with(|c: char| c == '_' || c.is_alphabetic());
    begins && word.chars().all(|c| c == '_' || c.is_alphanumeric()) && !WORDS.contains(&word)
}

/// Returns the Python path of a module: `layer1.0.conv1` becomes `self.layer1["0"]["conv1"]`.
///
/// # Errors
/// Fails if the first part is not a valid identifier, or if a part is an attribute of every module or of every
/// `nn.ModuleDict`.
pub(super) fn path(name: &str) -> Result<String, String> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let proper = first.chars().all(letters) && first.starts_with(|c: char| c.is_ascii_alphabetic());
    if !proper || WORDS.contains(&first) || TAKEN.contains(&first) {
        return Err(format!(
            "its name begins with \"{first}\", which cannot be the name of a layer in Python. Rename it"
        ));
    }
    let keys = rest.into_iter().flat_map(|rest| rest.split('.'));
    let free = |key| match key {
        "" => Err("its name has an empty part. Rename it".to_string()),
        _ if TAKEN.contains(&key) || TAKEN_BELOW.contains(&key) => {
            Err(format!("\"{key}\" in its name is already an attribute of PyTorch's modules. Rename it"))
        }
        _ => Ok(key),
    };
    keys.map(free).try_fold(format!("self.{first}"), |path, key| key.map(|key| format!("{path}[{}]", quoted(key))))
}

/// Returns a Python string literal.
pub(super) fn quoted(text: &str) -> String {
    // JSON's escapes are valid in Python
    serde_json::Value::from(text).to_string()
}

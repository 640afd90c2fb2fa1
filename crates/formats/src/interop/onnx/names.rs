//! Names of layers. They are PyTorch's module paths if the file has them.

use std::collections::{BTreeMap, BTreeSet};

use net::LONGEST_PATH;

/// Largest number of characters from a name in the file. The rest of the limit is for the suffixes that make names
/// unique.
const LONGEST: usize = LONGEST_PATH - 50;

#[derive(Debug, Default)]
pub(super) struct Names {
    taken: BTreeSet<String>,
    /// The last suffix of each path. Many nodes of a file may have the same name, and counting from 1 each time would
    /// be slow.
    last: BTreeMap<String, usize>,
}

impl Names {
    /// Returns a new unique name. Prefers the module path in the name of the weight, for example `layer1.0.conv1` from
    /// `layer1.0.conv1.weight`. Otherwise uses the name of the node, or of the op if the node's name is empty.
    pub fn take(&mut self, weight: Option<&str>, label: &str, op: &str) -> String {
        let path =
            weight.and_then(|weight| [".weight", ".layer_scale"].iter().find_map(|end| weight.strip_suffix(end)));
        let path = path.map_or_else(|| module(label), plain);
        let path = if path.is_empty() { op.to_lowercase() } else { path };
        let last = self.last.entry(path.clone()).or_insert(0);
        loop {
            *last += 1;
            let name = if *last == 1 { path.clone() } else { format!("{path}_{last}") };
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Returns the module path in the name of a node, for example `layer1.0.conv1` from PyTorch's
/// `/layer1/layer1.0/conv1/Conv`.
fn module(label: &str) -> String {
    let Some(scopes) = label.strip_prefix('/') else { return plain(label.strip_prefix("node_").unwrap_or(label)) };
    let parts: Vec<&str> = scopes.split('/').filter(|part| !part.is_empty()).collect();
    let (last, scopes) = match parts.split_last() {
        // the last part is the node's operator
        Some((_, scopes)) if !scopes.is_empty() => (None, scopes),
        Some((last, scopes)) => (Some(*last), scopes),
        None => return String::new(),
    };
    let mut path = String::new();
    for part in scopes.iter().copied().chain(last) {
        let whole = part == path || part.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'));
        path = if path.is_empty() || whole { part.to_string() } else { format!("{path}.{part}") };
    }
    plain(&path)
}

/// Replaces all characters except letters, digits, `-` and `.` by `_`, and removes empty parts between dots. Adds a
/// prefix to names that begin with `input`.
fn plain(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
    let text: String = text.chars().take(LONGEST).map(kept).collect();
    let parts: Vec<&str> = text.split('.').filter(|part| !part.is_empty()).collect();
    let path = parts.join(".");
    if path.starts_with("input") { format!("layer_{path}") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_become_module_paths() {
        let mut names = Names::default();
        assert_eq!(names.take(Some("layer1.0.conv1.weight"), "/x/Conv", "Conv"), "layer1.0.conv1");
        assert_eq!(names.take(Some("onnx::Conv_12"), "/layer1/layer1.0/relu/Relu", "Relu"), "layer1.0.relu");
        assert_eq!(names.take(None, "/layer1/layer1.0/relu/Relu_1", "Relu"), "layer1.0.relu_2");
        assert_eq!(names.take(None, "/Flatten", "Flatten"), "Flatten");
        assert_eq!(names.take(None, "/classifier/0/Gemm", "Gemm"), "classifier.0");
        assert_eq!(names.take(None, "node_relu", "Relu"), "relu");
        assert_eq!(names.take(None, "", "Relu"), "relu_2");
        assert_eq!(names.take(None, "..a b//ü..c", "Relu"), "a_b___.c");
        assert_eq!(names.take(None, "input", "Relu"), "layer_input");
        let long = "input.".repeat(100);
        let [one, other] = [(); 2].map(|()| names.take(None, &long, "Relu"));
        assert!(one != other && one.len().max(other.len()) <= LONGEST_PATH, "{one} {other}");
    }

    /// Counting the suffixes from 1 for each of so many nodes would take minutes.
    #[test]
    fn equal_node_names_get_suffixes_in_linear_time() {
        let mut names = Names::default();
        assert_eq!(names.take(None, "drop_3", "Dropout"), "drop_3");
        let all: Vec<String> = (0..20_000).map(|_| names.take(None, "drop", "Dropout")).collect();
        assert_eq!(all[..4], ["drop", "drop_2", "drop_4", "drop_5"]);
        assert_eq!(all[19_999], "drop_20001");
        assert!(names.last["drop"] == 20_001 && names.taken.len() == 20_001);
        assert_eq!(names.take(None, "drop_3", "Dropout"), "drop_3_2");
    }
}

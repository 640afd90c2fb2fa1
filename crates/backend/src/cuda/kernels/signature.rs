//! The parameters of a declared kernel beside those in the sources: what the test of every `kernels!` compares.

use super::source;

/// A parameter of a kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    /// The kernels' name of its type, or of what it points to.
    pub element: &'static str,
    pub pointer: bool,
}

/// Fails where the sources have no kernel of this name with these parameters.
pub fn compare(kernel: &str, declared: &[Parameter]) {
    let text = source::text();
    let parameters = source::kernels(&text).find(|(name, _)| *name == kernel).map(|(_, parameters)| parameters);
    let parameters = parameters.unwrap_or_else(|| panic!("{kernel} is declared, but not in the sources"));
    let written: Vec<_> = parameters.split(',').map(parameter).collect();
    let declared: Vec<_> = declared.iter().map(|p| (p.name, p.element, p.pointer)).collect();
    assert_eq!(written, declared, "{kernel}");
}

/// Name, type and whether it is a pointer, of `const float* __restrict__ x` and the like.
fn parameter(text: &str) -> (&str, &str, bool) {
    let words: Vec<&str> = text.split_whitespace().filter(|word| !["const", "__restrict__"].contains(word)).collect();
    let [element, name] = words[..] else { panic!("a parameter without type or name: {text}") };
    (name, element.trim_end_matches('*'), element.ends_with('*'))
}

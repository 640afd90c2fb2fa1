//! The kernels' sources as one text, and what stands in it.

use crate::backend::Rule;

/// All sources but those of the update rules, in the order in which they are put together.
const SOURCES: &[(&str, &str)] = &[
    ("common.cuh", include_str!("common.cuh")),
    ("columns.cuh", include_str!("columns.cuh")),
    ("elementwise.cu", include_str!("elementwise.cu")),
    ("bias.cu", include_str!("bias.cu")),
    ("norm.cu", include_str!("norm.cu")),
    ("pool.cu", include_str!("pool.cu")),
    ("lrn.cu", include_str!("lrn.cu")),
    ("shortcut.cu", include_str!("shortcut.cu")),
    ("dropout.cu", include_str!("dropout.cu")),
    ("loss.cu", include_str!("loss.cu")),
    ("arena.cu", include_str!("arena.cu")),
    ("update.cu", include_str!("update.cu")),
    ("input.cu", include_str!("input.cu")),
    ("codec.cu", include_str!("codec.cu")),
];

/// The kernels as one text.
pub fn text() -> String {
    SOURCES.iter().chain(Rule::SOURCES).map(|(name, text)| format!("#line 1 \"{name}\"\n{text}")).collect()
}

/// Each kernel of a text: its name, and its parameters as they are written.
fn kernels(source: &str) -> impl Iterator<Item = (&str, &str)> {
    source.split("extern \"C\" __global__ void ").skip(1).filter_map(|text| {
        // `__launch_bounds__(256) name(...)`
        let bounded = text.strip_prefix("__launch_bounds__");
        let text = bounded.map_or(text, |rest| rest.split_once(") ").map_or("", |p| p.1));
        let (name, rest) = text.split_once('(')?;
        Some((name, rest.split_once(')')?.0))
    })
}

/// The names of all kernels of a text.
pub fn names(source: &str) -> Vec<String> {
    kernels(source).map(|(name, _)| name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::kernel::{Parameter, Signature};
    use super::super::{arena, bias, codec, dropout, elementwise, input, loss, lrn, norm, pool, shortcut, update};
    use super::*;

    /// `const float* x` and the like.
    fn parameter(text: &str) -> (String, String, bool) {
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "const").collect();
        let [element, name] = words[..] else { panic!("a parameter without type or name: {text}") };
        (name.into(), element.trim_end_matches('*').into(), element.ends_with('*'))
    }

    #[test]
    fn every_kernel_of_the_sources_is_declared_with_its_parameters() {
        let source = text();
        let files: [&[Signature]; 12] = [
            arena::SIGNATURES,
            bias::SIGNATURES,
            codec::SIGNATURES,
            dropout::SIGNATURES,
            elementwise::SIGNATURES,
            input::SIGNATURES,
            loss::SIGNATURES,
            lrn::SIGNATURES,
            norm::SIGNATURES,
            pool::SIGNATURES,
            shortcut::SIGNATURES,
            update::SIGNATURES,
        ];
        let declared = |name: &str| {
            // all rules take the parameters of one declaration
            let name = if name.starts_with(update::RULE) { "update_sgd" } else { name };
            files.iter().flat_map(|file| file.iter()).find(|(declared, _)| *declared == name)
        };
        for (name, list) in kernels(&source) {
            let (_, parameters) = declared(name).unwrap_or_else(|| panic!("{name} is not declared"));
            let own = |p: &Parameter| (p.name.to_string(), p.element.to_string(), p.pointer);
            let written: Vec<_> = list.split(',').map(parameter).collect();
            assert_eq!(written, parameters.iter().map(own).collect::<Vec<_>>(), "{name}");
        }
        let there = names(&source);
        assert_eq!(there.len(), source.matches("__global__ void").count());
        assert!(!source.contains("extern __shared__"), "no kernel takes dynamic shared memory");
        let all = files.iter().flat_map(|file| file.iter()).map(|(name, _)| *name);
        for name in all {
            assert!(there.iter().any(|t| t == name), "{name} is declared, but not in the sources");
        }
    }
}

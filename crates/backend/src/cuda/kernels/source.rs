//! The kernels' sources as one text, and what stands in it.

use crate::Rule;

/// All sources but those of the update rules, in the order in which they are put together.
const SOURCES: &[(&str, &str)] = &[
    ("common.cuh", include_str!("common.cuh")),
    ("columns.cuh", include_str!("columns.cuh")),
    ("elementwise.cu", include_str!("elementwise.cu")),
    ("activation.cu", include_str!("activation.cu")),
    ("bias.cu", include_str!("bias.cu")),
    ("linear.cu", include_str!("linear.cu")),
    ("shortcut.cuh", include_str!("shortcut.cuh")),
    ("norm.cu", include_str!("norm.cu")),
    ("pool.cu", include_str!("pool.cu")),
    ("blur.cu", include_str!("blur.cu")),
    ("lrn.cu", include_str!("lrn.cu")),
    ("shortcut.cu", include_str!("shortcut.cu")),
    ("fold.cu", include_str!("fold.cu")),
    ("concat.cu", include_str!("concat.cu")),
    ("multiply.cu", include_str!("multiply.cu")),
    ("group_norm.cu", include_str!("group_norm.cu")),
    ("layer_scale.cu", include_str!("layer_scale.cu")),
    ("dropout.cu", include_str!("dropout.cu")),
    ("loss.cu", include_str!("loss.cu")),
    ("soft_loss.cu", include_str!("soft_loss.cu")),
    ("arena.cu", include_str!("arena.cu")),
    ("update.cu", include_str!("update.cu")),
    ("input.cu", include_str!("input.cu")),
    ("codec.cu", include_str!("codec.cu")),
];

/// Name and text of every source, in their order.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SOURCES.iter().chain(Rule::SOURCES).copied()
}

/// The kernels as one text.
pub fn text() -> String {
    all().map(|(name, text)| with_name(name, text)).collect()
}

/// A source under the name that the compiler's messages give it.
pub fn with_name(name: &str, text: &str) -> String {
    format!("#line 1 \"{name}\"\n{text}")
}

/// Each kernel of a text: its name, and its parameters as they are written.
pub fn kernels(source: &str) -> impl Iterator<Item = (&str, &str)> {
    declarations(source).map(|(_, name, parameters)| (name, parameters))
}

/// Bounds, name and parameters of each kernel.
fn declarations(source: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    source.split("extern \"C\" __global__ void ").skip(1).filter_map(|text| {
        // `__launch_bounds__(256, 3) name(...)`
        let bounded = text.strip_prefix("__launch_bounds__(");
        let (bounds, text) = bounded.map_or(Some(("", text)), |rest| rest.split_once(") "))?;
        let (name, rest) = text.split_once('(')?;
        Some((bounds, name, rest.split_once(')')?.0))
    })
}

/// What `__launch_bounds__` says of a kernel.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Threads of a block, at most.
    pub threads: Option<u32>,
    /// Blocks on a multiprocessor, at least.
    pub blocks: Option<u32>,
}

/// The bounds of each kernel of a text.
#[cfg(test)]
pub fn bounds(source: &str) -> impl Iterator<Item = (&str, Bounds)> {
    declarations(source).map(|(bounds, name, _)| {
        let mut numbers = bounds.split(", ").map(|number| number.parse().ok());
        (name, Bounds { threads: numbers.next().flatten(), blocks: numbers.next().flatten() })
    })
}

/// The names of all kernels of a text.
pub fn names(source: &str) -> Vec<String> {
    kernels(source).map(|(name, _)| name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::update;
    use super::*;

    /// The files that may declare kernels.
    fn rust_files() -> Vec<String> {
        let cuda = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda");
        let paths = ["kernels", "ops"].into_iter().flat_map(|folder| fs::read_dir(cuda.join(folder)).unwrap());
        let paths = paths.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "rs"));
        paths.map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    #[test]
    fn every_kernel_of_the_sources_is_declared() {
        let (source, files) = (text(), rust_files());
        let declared = |name: &str| {
            let start = format!("{name}: ");
            let mut lines = files.iter().flat_map(|file| file.lines());
            lines.any(|line| line.trim_start().starts_with(&start) && line.contains(" over "))
        };
        let names = names(&source);
        assert_eq!(names.len(), source.matches("__global__ void").count());
        for name in names.iter().filter(|name| !name.starts_with(update::RULE)) {
            assert!(declared(name), "{name} is not declared");
        }
        assert!(!source.contains("extern __shared__"), "no kernel takes dynamic shared memory");
    }

    #[test]
    fn all_update_rules_have_the_parameters_of_the_declared_one() {
        let source = text();
        let rules: Vec<_> = kernels(&source).filter(|(name, _)| name.starts_with(update::RULE)).collect();
        let declared =
            rules.iter().find(|(name, _)| *name == "update_sgd").expect("its declaration is UpdateArguments");
        assert!(rules.len() >= Rule::SOURCES.len());
        for (name, parameters) in &rules {
            assert_eq!(*parameters, declared.1, "{name}");
        }
    }
}

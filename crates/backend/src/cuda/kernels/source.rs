//! The source of all kernels as a single text, and files that replace parts of it. With TRIREME_KERNELS=DIR, you can
//! try variants without a new build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::cuda::driver::switches::switches;

/// All sources. They are concatenated in this order.
const SOURCES: &[(&str, &str)] = &[
    ("common.cuh", include_str!("common.cuh")),
    ("columns.cuh", include_str!("columns.cuh")),
    ("elementwise.cu", include_str!("elementwise.cu")),
    ("linear.cu", include_str!("linear.cu")),
    ("shortcut.cuh", include_str!("shortcut.cuh")),
    ("norm.cu", include_str!("norm.cu")),
    ("pool.cu", include_str!("pool.cu")),
    ("lrn.cu", include_str!("lrn.cu")),
    ("channels.cu", include_str!("channels.cu")),
    ("attention.cu", include_str!("attention.cu")),
    ("fold.cu", include_str!("fold.cu")),
    ("group_norm.cu", include_str!("group_norm.cu")),
    ("loss.cu", include_str!("loss.cu")),
    ("arena.cu", include_str!("arena.cu")),
    ("update.cu", include_str!("update.cu")),
    ("rules.cu", include_str!("../../update/rules.cu")),
    ("input.cu", include_str!("input.cu")),
    ("codec.cu", include_str!("codec.cu")),
];

/// Returns name and text of every source, in order.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SOURCES.iter().copied()
}

/// Returns the text with all kernels.
pub fn text() -> String {
    all().map(|(name, text)| with_name(name, text)).collect()
}

/// Start of the line directive that precedes each file.
const LINE: &str = "#line 1 ";

/// Adds a line directive, so that the compiler's messages name the file.
pub fn with_name(name: &str, text: &str) -> String {
    format!("{LINE}\"{name}\"\n{text}")
}

/// Returns name and parameters of each kernel in a text.
pub fn kernels(source: &str) -> impl Iterator<Item = (&str, &str)> {
    declarations(source).map(|(_, name, parameters)| (name, parameters))
}

/// Returns launch bounds, name and parameters of each kernel.
fn declarations(source: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    source.split("extern \"C\" __global__ void ").skip(1).filter_map(|text| {
        // `__launch_bounds__(256, 3) name(...)`
        let bounded = text.strip_prefix("__launch_bounds__(");
        let (bounds, text) = bounded.map_or(Some(("", text)), |rest| rest.split_once(") "))?;
        let (name, rest) = text.split_once('(')?;
        Some((bounds, name, rest.split_once(')')?.0))
    })
}

/// A kernel's `__launch_bounds__`.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Maximum threads per block.
    pub threads: Option<u32>,
    /// Minimum number of blocks per multiprocessor.
    pub blocks: Option<u32>,
}

/// Returns the launch bounds of each kernel in a text.
#[cfg(test)]
pub fn bounds(source: &str) -> impl Iterator<Item = (&str, Bounds)> {
    declarations(source).map(|(bounds, name, _)| {
        let mut numbers = bounds.split(", ").map(|number| number.parse().ok());
        (name, Bounds { threads: numbers.next().flatten(), blocks: numbers.next().flatten() })
    })
}

pub fn names(source: &str) -> Vec<String> {
    kernels(source).map(|(name, _)| name.to_string()).collect()
}

/// Returns the source of all kernels. Files in the folder TRIREME_KERNELS replace built-in files with the same name.
pub fn source() -> Result<String, Error> {
    match &switches().kernels {
        None => Ok(text()),
        Some(folder) => variant(folder).map_err(|why| Error::Unsupported { op: "TRIREME_KERNELS".into(), why }),
    }
}

/// The source files for batch normalisation.
const NORM: [&str; 4] = ["common.cuh", "columns.cuh", "shortcut.cuh", "norm.cu"];

/// Returns the source for batch normalisation in groups, in which files in TRIREME_KERNELS also replace built-in ones.
pub fn grouped() -> Result<String, Error> {
    let source = source()?;
    let files = source.split(LINE).filter(|file| NORM.iter().any(|name| file.starts_with(&format!("\"{name}\"\n"))));
    Ok(files.fold("#define NORM_GROUPS 1\n".to_string(), |text, file| text + LINE + file))
}

/// Returns the source with the files of this folder. Returns an error if a file has an unknown name or a kernel has
/// other parameters than the built-in one.
fn variant(folder: &Path) -> Result<String, String> {
    let files = files(folder)?;
    let text = all().map(|(name, text)| match files.get(name) {
        None => Ok(with_name(name, text)),
        Some(file) => {
            fs::read_to_string(file).map(|text| with_name(name, &text)).map_err(|e| format!("{}: {e}", file.display()))
        }
    });
    let text = text.collect::<Result<String, String>>()?;
    check(&self::text(), &text)?;
    Ok(text)
}

/// Returns the sources in a folder by name. A name that is not built in is an error, because such a file would have no
/// effect.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let unreadable = |e: std::io::Error| format!("{}: {e}", folder.display());
    let known = || all().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if !file.extension().is_some_and(|e| e == "cu" || e == "cuh") {
            continue;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if all().all(|(known, _)| known != name) {
            return Err(format!("{}: no built-in source has this name; the names are {}", file.display(), known()));
        }
        found.insert(name, file);
    }
    if found.is_empty() {
        return Err(format!(
            "{}: the folder has no kernel sources; expected at least one of {}",
            folder.display(),
            known()
        ));
    }
    Ok(found)
}

/// Returns an error if a kernel is missing or has other parameters than the built-in kernel, because the host passes
/// the arguments of the built-in kernel.
fn check(built_in: &str, text: &str) -> Result<(), String> {
    let plain = |parameters: &str| parameters.split_whitespace().collect::<Vec<_>>().join(" ");
    let own: BTreeMap<&str, String> = kernels(text).map(|(name, given)| (name, plain(given))).collect();
    for (name, parameters) in kernels(built_in) {
        let expected = plain(parameters);
        match own.get(name) {
            None => return Err(format!("the kernel {name} is missing")),
            Some(given) if *given != expected => {
                return Err(format!("the kernel {name} must have the parameters ({expected}), but has ({given})"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Compares declared parameters with the sources, for the tests that `kernels!` generates.
#[cfg(test)]
pub mod signature {
    #[derive(Debug, PartialEq, Eq)]
    pub struct Parameter {
        pub name: &'static str,
        /// The kernels' name for the parameter's type. For a pointer, the name for the type of its target.
        pub element: &'static str,
        pub pointer: bool,
    }

    /// Panics if the sources have no kernel with this name and these parameters.
    pub fn compare(kernel: &str, declared: &[Parameter]) {
        let text = super::text();
        let parameters = super::kernels(&text).find(|(name, _)| *name == kernel).map(|(_, parameters)| parameters);
        let parameters = parameters.unwrap_or_else(|| panic!("{kernel} is declared, but not in the sources"));
        let written: Vec<_> = parameters.split(',').map(parameter).collect();
        let declared: Vec<_> = declared.iter().map(|p| (p.name, p.element, p.pointer)).collect();
        assert_eq!(written, declared, "{kernel}");
    }

    /// Returns name, type, and whether it is a pointer, of a parameter such as `const float* __restrict__ x`.
    fn parameter(text: &str) -> (&str, &str, bool) {
        let words: Vec<&str> =
            text.split_whitespace().filter(|word| !["const", "__restrict__"].contains(word)).collect();
        let [element, name] = words[..] else { panic!("a parameter without type or name: {text}") };
        (name, element.trim_end_matches('*'), element.ends_with('*'))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::update;
    use super::*;

    /// Returns the texts of the files that may declare kernels.
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
        assert!(rules.len() > 1);
        for (name, parameters) in &rules {
            assert_eq!(*parameters, declared.1, "{name}");
        }
    }

    /// Calls `f` with the result of `variant` for a folder with these files.
    fn with(name: &str, files: &[(&str, &str)], f: impl FnOnce(Result<String, String>)) {
        let folder = std::env::temp_dir().join(format!("trireme-variant-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        f(variant(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }

    fn built_in(name: &str) -> &'static str {
        all().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn a_variant_file_replaces_the_built_in_source_of_its_name() {
        let marked = format!("// a variant\n{}", built_in("loss.cu"));
        with("marked", &[("loss.cu", &marked), ("README", "no source")], |text| {
            let text = text.unwrap();
            assert!(text.contains("#line 1 \"loss.cu\"\n// a variant\n"));
            assert_eq!(
                text.replace("// a variant\n", ""),
                super::text(),
                "everything else is built in, in the same order"
            );
        });
    }

    #[test]
    fn variant_folders_without_known_sources_are_refused() {
        with("unknown", &[("lose.cu", "")], |text| {
            let why = text.unwrap_err();
            assert!(why.contains("lose.cu") && why.contains("loss.cu") && why.contains("common.cuh"), "{why}");
        });
        with("empty", &[], |text| assert!(text.unwrap_err().contains("no kernel sources")));
        assert!(variant(Path::new("/nowhere")).unwrap_err().contains("/nowhere"));
    }

    #[test]
    fn variants_with_other_kernel_parameters_are_refused() {
        let source = built_in("linear.cu");
        let (name, parameters) = kernels(source).next().unwrap();
        let given = format!("{name}({parameters}");
        let longer = source.replacen(&given, &format!("{given}, int more"), 1);
        with("longer", &[("linear.cu", &longer)], |text| {
            let why = text.err().unwrap_or_default();
            assert!(why.contains(name) && why.contains("int more"), "{why}");
        });
        with("gone", &[("linear.cu", "")], |text| assert!(text.unwrap_err().contains(name)));
    }
}

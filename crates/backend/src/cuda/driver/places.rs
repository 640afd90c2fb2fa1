//! Where NVIDIA's libraries may lie, beside the folders that the dynamic loader knows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Folders; among them the newest library comes first.
pub type Place = Vec<PathBuf>;

/// Reads a variable of the environment.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What messages say of them.
pub const WORDS: &str = "Python's packages (site-packages/nvidia/*/lib of VIRTUAL_ENV, CONDA_PREFIX, the python3 on PATH and PYTHONPATH), \
                         CUDA_HOME, CUDA_PATH, /usr/local/cuda*";

/// The places in the order of the search: each folder of LD_LIBRARY_PATH, since whoever sets it has chosen; the packages with which
/// PyTorch is installed; toolkits. Below `root`, which is `/`. Folders may be absent.
pub fn places(variable: Variable<'_>, root: &Path) -> Vec<Place> {
    let chosen = paths(variable, "LD_LIBRARY_PATH").into_iter().map(|folder| vec![folder]);
    let toolkits = ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].into_iter().filter_map(|name| path(variable, name));
    let toolkits = toolkits.map(|toolkit| libraries(&toolkit).to_vec());
    let standard = children(&root.join("usr/local"), "cuda").into_iter().chain([root.join("opt/cuda")]);
    let standard = standard.chain([root.join("opt/nvidia/nccl")]).flat_map(|toolkit| libraries(&toolkit)).collect();
    chosen.chain([wheels(variable)]).chain(toolkits).chain([standard]).collect()
}

/// The folders of libraries of a toolkit.
fn libraries(toolkit: &Path) -> [PathBuf; 3] {
    ["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| toolkit.join(folder))
}

fn path(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn paths(variable: Variable<'_>, name: &str) -> Vec<PathBuf> {
    let value = variable(name).unwrap_or_default();
    std::env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

/// What a folder holds whose name begins so, in the order of names.
pub fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// `nvidia/*/lib` in the folders of Python's packages, which are found without starting Python.
fn wheels(variable: Variable<'_>) -> Place {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| path(variable, name));
    let prefixes = environments.chain(python(variable));
    let mut packages = paths(variable, "PYTHONPATH");
    packages.extend(prefixes.flat_map(|prefix| packages_of(&prefix)));
    packages.extend(path(variable, "HOME").into_iter().flat_map(|home| packages_of(&home.join(".local"))));
    let wheels = packages.iter().flat_map(|packages| children(&packages.join("nvidia"), ""));
    wheels.map(|wheel| wheel.join("lib")).collect()
}

/// The prefixes of the first python3 on PATH: where it is called, and where the link leads.
fn python(variable: Variable<'_>) -> Vec<PathBuf> {
    let programs = paths(variable, "PATH").into_iter().map(|folder| folder.join("python3"));
    let Some(program) = programs.into_iter().find(|program| program.is_file()) else { return Vec::new() };
    let real = program.canonicalize().ok();
    let prefix = |program: &Path| Some(program.parent()?.parent()?.to_path_buf());
    [prefix(&program), real.as_deref().and_then(prefix)].into_iter().flatten().collect()
}

/// The folders of packages below a prefix; Debian's have names of their own.
fn packages_of(prefix: &Path) -> Vec<PathBuf> {
    let versions = ["lib", "lib64", "local/lib"].into_iter().flat_map(|lib| children(&prefix.join(lib), "python3"));
    versions.flat_map(|version| ["site-packages", "dist-packages"].map(|packages| version.join(packages))).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_place_in_its_turn() {
        let root = std::env::temp_dir().join(format!("trireme-places-{}", std::process::id()));
        let at = |path: &str| root.join(path);
        for folder in
            ["venv/lib/python3.12", "base/lib/python3.12", "conda/lib/python3.11", "home/.local/lib/python3.9", "added"]
        {
            let packages = if folder == "added" { folder.to_string() } else { format!("{folder}/site-packages") };
            std::fs::create_dir_all(at(&format!("{packages}/nvidia/cudnn/lib"))).unwrap();
        }
        std::fs::create_dir_all(at("base/local/lib/python3.12/dist-packages/nvidia/nccl/lib")).unwrap();
        for folder in ["base/bin", "venv/bin", "empty", "usr/local/cuda-12.9", "usr/local/cuda", "usr/local/other"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::fs::write(at("base/bin/python3"), "").unwrap();
        symlink(at("base/bin/python3"), at("venv/bin/python3")).unwrap();
        let text = |paths: &[&str]| std::env::join_paths(paths.iter().map(|path| at(path))).unwrap();
        let variable = |name: &str| match name {
            "LD_LIBRARY_PATH" => Some(text(&["second", "first"])),
            "PATH" => Some(text(&["empty", "venv/bin", "base/bin"])),
            "PYTHONPATH" => Some(text(&["added"])),
            "CUDA_HOME" => Some(at("toolkit").into()),
            "CONDA_PREFIX" => Some(at("conda").into()),
            "HOME" => Some(at("home").into()),
            "CUDA_PATH" => Some("".into()),
            _ => None,
        };
        let found = places(&variable, &root);
        let shown = |place: &Place| {
            let relative = place.iter().map(|folder| folder.strip_prefix(&root).unwrap().to_str().unwrap().to_string());
            relative.collect::<Vec<_>>()
        };
        let found: Vec<_> = found.iter().map(shown).collect();
        let python =
            |prefix: &str, version: &str| format!("{prefix}/lib/python3.{version}/site-packages/nvidia/cudnn/lib");
        let wheels = vec![
            "added/nvidia/cudnn/lib".to_string(),
            python("conda", "11"),
            // the python3 that PATH names first, then what it is a link to
            python("venv", "12"),
            python("base", "12"),
            "base/local/lib/python3.12/dist-packages/nvidia/nccl/lib".to_string(),
            python("home/.local", "9"),
        ];
        let toolkit = |name: &str| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|lib| format!("{name}/{lib}"));
        let standard = ["usr/local/cuda", "usr/local/cuda-12.9", "opt/cuda", "opt/nvidia/nccl"].map(toolkit).concat();
        let expected = [
            vec!["second".to_string()],
            vec!["first".to_string()],
            wheels,
            toolkit("toolkit").to_vec(),
            toolkit("conda").to_vec(),
            standard,
        ];
        assert_eq!(found, expected);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn without_any_variable_only_the_standard_places_are_left() {
        let found = places(&|_| None, Path::new("/nowhere"));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [0, 6], "no wheels; opt/cuda and opt/nvidia/nccl");
    }
}

//! Searches for the files of NVIDIA's libraries: their names, the folders that may contain them besides those of the
//! dynamic loader, and the candidates, best first. It only looks at file names and loads nothing.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsString};
use std::path::{Path, PathBuf};

/// Major CUDA versions of the library names that are tried.
const MAJORS: std::ops::RangeInclusive<u32> = 11..=19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// libcuda, installed with the driver.
    Driver,
    /// The compiler for our kernels.
    Nvrtc,
    CublasLt,
    Cudnn,
    /// Computes sums over ranks. Loaded only on request.
    Nccl,
}

/// The libraries that this backend requires, in the order of the search. Each comes after the libraries that it uses.
pub const ALL: [Library; 4] = [Library::Driver, Library::Nvrtc, Library::CublasLt, Library::Cudnn];

impl Library {
    /// Returns the part of the file name between `lib` and `.so`.
    pub fn stem(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::CublasLt => "cublasLt",
            Library::Cudnn => "cudnn",
            Library::Nccl => "nccl",
        }
    }

    /// Returns a function that every version of the library has.
    pub fn function(self) -> &'static CStr {
        match self {
            Library::Driver => c"cuDriverGetVersion",
            Library::Nvrtc => c"nvrtcVersion",
            Library::CublasLt => c"cublasLtGetVersion",
            Library::Cudnn => c"cudnnGetVersion",
            Library::Nccl => c"ncclGetVersion",
        }
    }

    /// Returns the name prefix of the libraries that this library opens itself.
    pub fn companions(self) -> Option<&'static str> {
        match self {
            Library::Nvrtc => Some("libnvrtc-builtins.so"),
            Library::Cudnn => Some("libcudnn_"),
            _ => None,
        }
    }

    /// Returns advice on what to install.
    pub fn cure(self) -> &'static str {
        match self {
            Library::Driver => {
                "install the NVIDIA driver of this machine's GPU (Debian: nvidia-driver), or, in a container, start it with \
                 --gpus all or --nv"
            }
            Library::Nvrtc => {
                "load the CUDA toolkit's module, or `pip install nvidia-cuda-nvrtc` (nvidia-cuda-nvrtc-cu12 for a driver of \
                 CUDA 12)"
            }
            Library::CublasLt => {
                "load the CUDA toolkit's module, or `pip install nvidia-cublas` (nvidia-cublas-cu12 for a driver of CUDA 12)"
            }
            Library::Cudnn => {
                "load cuDNN's module (version 9), or `pip install nvidia-cudnn-cu13` (-cu12 for a driver of CUDA 12)"
            }
            Library::Nccl => "load NCCL's module, or `pip install nvidia-nccl-cu13` (-cu12 for a driver of CUDA 12)",
        }
    }

    /// Returns the file names to pass to the dynamic loader: names that suit the driver, newest first, then the others.
    pub fn names(self, driver: u32) -> Vec<String> {
        let file = |major: u32| format!("lib{}.so.{major}", self.stem());
        let bare = format!("lib{}.so", self.stem());
        match self {
            Library::Driver => {
                // folders of containers and WSL, which the dynamic loader may not search
                let others = ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"].map(|at| format!("{at}/{}", file(1)));
                [file(1), bare].into_iter().chain(others).collect()
            }
            Library::Cudnn => vec![file(9), bare, file(8)],
            Library::Nccl => vec![file(2), bare],
            Library::Nvrtc | Library::CublasLt => {
                let (good, newer): (Vec<u32>, Vec<u32>) = MAJORS.rev().partition(|major| *major <= driver);
                good.into_iter().map(file).chain([bare]).chain(newer.into_iter().map(file)).collect()
            }
        }
    }

    /// Returns true if this program and the driver can use this version. An unknown version counts as usable.
    pub fn suits(self, version: &[u32], driver: u32) -> bool {
        let Some(&major) = version.first() else { return true };
        match self {
            Library::Driver | Library::Nccl => true,
            Library::Cudnn => major == 9,
            Library::Nvrtc | Library::CublasLt => major <= driver,
        }
    }
}

/// Folders that are searched together. The newest library in any of them comes first.
pub type Place = Vec<PathBuf>;

/// A function that reads an environment variable.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The searched places, for messages.
pub const SEARCHED_PLACES: &str = "\
    Python's packages (site-packages/nvidia/*/lib of VIRTUAL_ENV, CONDA_PREFIX, the python3 on PATH and PYTHONPATH), \
                         CUDA_HOME, CUDA_PATH, /usr/local/cuda*";

/// Returns the places in the order of the search. First comes each folder of LD_LIBRARY_PATH, because the user has set
/// it on purpose. Then come the Python packages that PyTorch is installed with, then the toolkits. `root` is `/` except
/// in tests. Folders need not exist.
pub fn places(variable: Variable<'_>, root: &Path) -> Vec<Place> {
    let chosen = paths(variable, "LD_LIBRARY_PATH").into_iter().map(|folder| vec![folder]);
    let toolkits = ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].into_iter().filter_map(|name| path(variable, name));
    let toolkits = toolkits.map(|toolkit| libraries(&toolkit).to_vec());
    let standard = children(&root.join("usr/local"), "cuda").into_iter().chain([root.join("opt/cuda")]);
    let standard = standard.chain([root.join("opt/nvidia/nccl")]).flat_map(|toolkit| libraries(&toolkit)).collect();
    chosen.chain([wheels(variable)]).chain(toolkits).chain([standard]).collect()
}

/// A toolkit's folder for this architecture. NVIDIA calls the one for servers with ARM processors `sbsa`.
const TARGET: &str = if cfg!(target_arch = "aarch64") { "targets/sbsa-linux/lib" } else { "targets/x86_64-linux/lib" };

/// Returns the library folders of a toolkit.
fn libraries(toolkit: &Path) -> [PathBuf; 3] {
    ["lib64", "lib", TARGET].map(|folder| toolkit.join(folder))
}

fn path(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn paths(variable: Variable<'_>, name: &str) -> Vec<PathBuf> {
    let value = variable(name).unwrap_or_default();
    std::env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

/// Returns the entries of a folder that begin with `prefix`, sorted by name.
pub fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Returns `nvidia/*/lib` in the folders of Python packages. Finds them without starting Python.
fn wheels(variable: Variable<'_>) -> Place {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| path(variable, name));
    let prefixes = environments.chain(python(variable));
    let mut packages = paths(variable, "PYTHONPATH");
    packages.extend(prefixes.flat_map(|prefix| packages_of(&prefix)));
    packages.extend(path(variable, "HOME").into_iter().flat_map(|home| packages_of(&home.join(".local"))));
    let wheels = packages.iter().flat_map(|packages| children(&packages.join("nvidia"), ""));
    wheels.map(|wheel| wheel.join("lib")).collect()
}

/// Returns the installation prefixes of the first python3 on PATH: of the path as found, and with symbolic links
/// resolved.
fn python(variable: Variable<'_>) -> Vec<PathBuf> {
    let programs = paths(variable, "PATH").into_iter().map(|folder| folder.join("python3"));
    let Some(program) = programs.into_iter().find(|program| program.is_file()) else { return Vec::new() };
    let real = program.canonicalize().ok();
    let prefix = |program: &Path| Some(program.parent()?.parent()?.to_path_buf());
    [prefix(&program), real.as_deref().and_then(prefix)].into_iter().flatten().collect()
}

/// Returns the package folders below a prefix. Debian calls them `dist-packages`.
fn packages_of(prefix: &Path) -> Vec<PathBuf> {
    let versions = ["lib", "lib64", "local/lib"].into_iter().flat_map(|lib| children(&prefix.join(lib), "python3"));
    versions.flat_map(|version| ["site-packages", "dist-packages"].map(|packages| version.join(packages))).collect()
}

/// A file that may be the library.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidate {
    pub file: PathBuf,
    /// The numbers after `.so.` in the file name, or in the name of the link's target.
    pub version: Vec<u32>,
}

/// Returns the files `libSTEM.so`, `libSTEM.so.1` and so on, place by place and newest first within a place. A file
/// with several names is returned once.
pub fn candidates(stem: &str, places: &[Place]) -> Vec<Candidate> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for place in places {
        let files = place.iter().flat_map(|folder| children(folder, &format!("lib{stem}.so")));
        let mut found: Vec<Candidate> = files.filter_map(|file| candidate(stem, file, &mut seen)).collect();
        // the sort is stable: files with equal versions stay in the order of their folders
        found.sort_by(|a, b| b.version.cmp(&a.version));
        all.extend(found);
    }
    all
}

fn candidate(stem: &str, file: PathBuf, seen: &mut BTreeSet<PathBuf>) -> Option<Candidate> {
    let own = version_of_file(stem, &file)?;
    let real = file.canonicalize().ok()?;
    let version = version_of_file(stem, &real).unwrap_or_default().max(own);
    seen.insert(real).then_some(Candidate { file, version })
}

/// Returns the numbers after `.so`, or `None` if the file is another library.
fn version_of_file(stem: &str, file: &Path) -> Option<Vec<u32>> {
    let numbers = file.file_name()?.to_str()?.strip_prefix("lib")?.strip_prefix(stem)?.strip_prefix(".so")?;
    match numbers.strip_prefix('.') {
        Some(numbers) => numbers.split('.').map(|number| number.parse().ok()).collect(),
        None => numbers.is_empty().then(Vec::new),
    }
}

/// Returns the major CUDA version that a file of a Python package is for. It is part of the package name, such as
/// `nvidia_cudnn_cu13`.
pub fn cuda_of_package(stem: &str, file: &Path) -> Option<u32> {
    // for example packages/nvidia/cudnn/lib/libcudnn.so.9
    let packages = file.ancestors().nth(4)?;
    let prefix = format!("nvidia_{stem}_cu");
    let name = children(packages, &prefix).pop()?;
    let digits: String = name.file_name()?.to_str()?[prefix.len()..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_are_searched_in_the_documented_order() {
        let root = std::env::temp_dir().join(format!("trireme-places-{}", std::process::id()));
        let at = |path: &str| root.join(path);
        for folder in
            ["venv/lib/python3.12", "base/lib/python3.12", "conda/lib/python3.11", "home/.local/lib/python3.9", "added"]
        {
            let packages = if folder == "added" { folder.to_string() } else { format!("{folder}/site-packages") };
            fs::create_dir_all(at(&format!("{packages}/nvidia/cudnn/lib"))).unwrap();
        }
        fs::create_dir_all(at("base/local/lib/python3.12/dist-packages/nvidia/nccl/lib")).unwrap();
        for folder in ["base/bin", "venv/bin", "empty", "usr/local/cuda-12.9", "usr/local/cuda", "usr/local/other"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("base/bin/python3"), "").unwrap();
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
            // the first python3 on PATH, then the target of its link
            python("venv", "12"),
            python("base", "12"),
            "base/local/lib/python3.12/dist-packages/nvidia/nccl/lib".to_string(),
            python("home/.local", "9"),
        ];
        let toolkit = |name: &str| ["lib64", "lib", TARGET].map(|lib| format!("{name}/{lib}"));
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
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn without_variables_only_standard_folders_are_searched() {
        let found = places(&|_| None, Path::new("/nowhere"));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [0, 6], "no wheels; opt/cuda and opt/nvidia/nccl");
    }

    /// Creates a folder with empty files. A name with ` -> ` becomes a link.
    fn folder(root: &Path, name: &str, files: &[&str]) -> PathBuf {
        let folder = root.join(name);
        fs::create_dir_all(&folder).unwrap();
        for file in files {
            match file.split_once(" -> ") {
                Some((link, to)) => symlink(to, folder.join(link)).unwrap(),
                None => fs::write(folder.join(file), "").unwrap(),
            }
        }
        folder
    }

    fn with(name: &str, f: impl FnOnce(&Path)) {
        let root = std::env::temp_dir().join(format!("trireme-candidates-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        f(&root);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn candidates_are_sorted_by_folder_then_newest_version() {
        with("order", |root| {
            let old = folder(root, "chosen", &["libnvrtc.so.12"]);
            let many =
                ["libnvrtc.so.12.9.86", "libnvrtc.so.12 -> libnvrtc.so.12.9.86", "libnvrtc.so -> libnvrtc.so.12"];
            let twelve = folder(root, "cuda-12.9", &many);
            let others = [
                "libnvrtc.so.13",
                "libnvrtc-builtins.so.13.0",
                "libnvrtc.alt.so.13",
                "libnvrtc.so.bak",
                "libnvrtc_static.a",
            ];
            let thirteen = folder(root, "cuda-13.0", &others);
            let broken = folder(root, "broken", &["libnvrtc.so.14 -> nothing"]);
            let found = candidates(
                "nvrtc",
                &[vec![old.clone()], vec![root.join("absent"), broken, twelve.clone(), thirteen.clone()]],
            );
            let files: Vec<_> = found.iter().map(|c| (c.file.clone(), c.version.clone())).collect();
            let expected = [
                (old.join("libnvrtc.so.12"), vec![12]),
                (thirteen.join("libnvrtc.so.13"), vec![13]),
                // a file with three names: the first name, and the version in the name that the link leads to
                (twelve.join("libnvrtc.so"), vec![12, 9, 86]),
            ];
            assert_eq!(files, expected);
            let suit: Vec<_> = found.iter().map(|c| Library::Nvrtc.suits(&c.version, 12)).collect();
            assert_eq!(suit, [true, false, true], "for a driver of CUDA 12");
        });
    }

    #[test]
    fn the_package_says_which_cuda_a_library_is_for() {
        with("package", |root| {
            let lib = folder(root, "site-packages/nvidia/cudnn/lib", &["libcudnn.so.9"]);
            let file = lib.join("libcudnn.so.9");
            assert_eq!(cuda_of_package("cudnn", &file), None);
            folder(root, "site-packages/nvidia_cudnn_cu13-9.19.0.56.dist-info", &[]);
            assert_eq!(cuda_of_package("cudnn", &file), Some(13));
            assert_eq!(cuda_of_package("nccl", &file), None);
        });
    }

    #[test]
    fn libraries_for_another_major_version_do_not_suit() {
        assert!(Library::Cudnn.suits(&[9, 19], 12) && !Library::Cudnn.suits(&[8], 13));
        assert!(Library::CublasLt.suits(&[11, 2], 12) && !Library::CublasLt.suits(&[13], 12));
        assert!(Library::Nvrtc.suits(&[], 12), "a name without a version says nothing");
        let names = Library::Nvrtc.names(12);
        let at = |name: &str| names.iter().position(|n| n == name).unwrap();
        assert!(at("libnvrtc.so.12") < at("libnvrtc.so.11") && at("libnvrtc.so") < at("libnvrtc.so.13"), "{names:?}");
    }
}

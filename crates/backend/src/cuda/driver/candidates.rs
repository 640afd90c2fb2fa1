//! The files that may be a library, the best first, judged by their names alone: none is loaded to find out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::places::{Place, children};

/// A file that may be the library.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidate {
    pub file: PathBuf,
    /// The numbers after `.so.` in its name, or in the name of the file that a link leads to.
    pub version: Vec<u32>,
}

/// The files `libSTEM.so`, `libSTEM.so.1` and so on of all places: place after place, within each the newest first. A file that has
/// several names comes once.
pub fn candidates(stem: &str, places: &[Place]) -> Vec<Candidate> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for place in places {
        let files = place.iter().flat_map(|folder| children(folder, &format!("lib{stem}.so")));
        let mut found: Vec<Candidate> = files.filter_map(|file| candidate(stem, file, &mut seen)).collect();
        // of equals the first folder's, since the sort is stable
        found.sort_by(|a, b| b.version.cmp(&a.version));
        all.extend(found);
    }
    all
}

fn candidate(stem: &str, file: PathBuf, seen: &mut BTreeSet<PathBuf>) -> Option<Candidate> {
    let own = version(stem, &file)?;
    let real = file.canonicalize().ok()?;
    let version = version(stem, &real).unwrap_or_default().max(own);
    seen.insert(real).then_some(Candidate { file, version })
}

/// The numbers after `.so`; none if it is another library's name.
fn version(stem: &str, file: &Path) -> Option<Vec<u32>> {
    let numbers = file.file_name()?.to_str()?.strip_prefix("lib")?.strip_prefix(stem)?.strip_prefix(".so")?;
    match numbers.strip_prefix('.') {
        Some(numbers) => numbers.split('.').map(|number| number.parse().ok()).collect(),
        None => numbers.is_empty().then(Vec::new),
    }
}

/// The major version of CUDA that a file of a Python package is for, which stands in the package's name: `nvidia_cudnn_cu13`.
pub fn cuda_of_package(stem: &str, file: &Path) -> Option<u32> {
    // packages/nvidia/cudnn/lib/libcudnn.so.9
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

    use super::super::nvidia::Library;
    use super::*;

    /// A folder with empty files of these names; a name with ` -> ` is a link.
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
    fn places_in_their_order_and_the_newest_first_within_one() {
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
                // three names of one file: the first of them, and the version of what it leads to
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
    fn versions_that_do_not_suit() {
        assert!(Library::Cudnn.suits(&[9, 19], 12) && !Library::Cudnn.suits(&[8], 13));
        assert!(Library::CublasLt.suits(&[11, 2], 12) && !Library::CublasLt.suits(&[13], 12));
        assert!(Library::Nvrtc.suits(&[], 12), "a name without a version says nothing");
        let names = Library::Nvrtc.names(12);
        let at = |name: &str| names.iter().position(|n| n == name).unwrap();
        assert!(at("libnvrtc.so.12") < at("libnvrtc.so.11") && at("libnvrtc.so") < at("libnvrtc.so.13"), "{names:?}");
    }
}

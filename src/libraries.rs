//! Lists the C libraries that the program uses, with their versions. Users need this to find out whether a security
//! problem affects them.

use std::collections::BTreeSet;
use std::path::Path;

use formats::checkpoint;
use training::launch;

const LOCK: &str = include_str!("../Cargo.lock");

/// The crate that contains libjpeg-turbo, the version of the crate, and the version of libjpeg-turbo, which cannot be
/// queried at run time.
const JPEG: (&str, &str, &str) = ("turbojpeg-sys", "1.2.0", "3.1.0");

/// Returns one line per library. Does not initialise MPI.
pub fn lines() -> Vec<String> {
    let mpi = comm::library_version();
    let mpi = mpi.split(['\n', '\0']).next().unwrap_or_default();
    let (of, version, jpeg) = JPEG;
    let mut lines = vec![
        format!("MPI: {mpi}"),
        format!(
            "{} (writes model files; reads files from other programs only in a child process)",
            checkpoint::library()
        ),
        format!("libjpeg-turbo {jpeg}, built in ({of} {version})"),
        format!("zlib: only implementations in Rust: {}", crates(&["flate2", "miniz_oxide", "zlib-rs"]).join(", ")),
    ];
    lines.extend(launch::library_lines());
    lines.extend(loaded().into_iter().map(|file| format!("loaded: {file}")));
    lines
}

/// Returns the names and versions of crates.
fn crates(names: &[&str]) -> Vec<String> {
    let version = |block: &str| {
        block.lines().find_map(|line| Some(line.strip_prefix("version = \"")?.trim_end_matches('"').to_string()))
    };
    let of = |name: &&str| {
        let head = format!("name = \"{name}\"\n");
        let blocks = LOCK.split("[[package]]").filter(move |block| block.contains(&head));
        blocks.filter_map(version).map(|version| format!("{name} {version}")).collect::<Vec<_>>()
    };
    names.iter().flat_map(of).collect()
}

/// Returns the files of the shared libraries in this process, with symbolic links resolved. Empty if the system does
/// not provide the list.
fn loaded() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files =
        maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).filter(|file| file.contains(".so"));
    let real = |file: &str| Path::new(file).canonicalize().map_or(file.to_string(), |path| path.display().to_string());
    files.map(real).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_has_a_version() {
        let lines = lines().join("\n");
        for part in ["MPI: ", "HDF5 1.", "oneDNN ", "libjpeg-turbo ", "flate2 1.", "loaded: /"] {
            assert!(lines.contains(part), "{part} in\n{lines}");
        }
        assert!(lines.lines().any(|line| line.starts_with("loaded: ") && line.contains("libmpi")), "{lines}");
    }

    /// The constant must match the crate that was built.
    #[test]
    fn the_bundled_version_matches_the_sources() {
        let (of, version, library) = JPEG;
        assert_eq!(crates(&[of]), [format!("{of} {version}")]);
        // Crates for other platforms may not have been downloaded.
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let args = ["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", &platform];
        let output =
            std::process::Command::new(env!("CARGO")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == of).unwrap();
        let sources =
            Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("libjpeg-turbo/CMakeLists.txt");
        let text = std::fs::read_to_string(sources).unwrap();
        assert!(text.contains(&format!("set(VERSION {library})")), "libjpeg-turbo of {of} {version} is not {library}");
    }
}

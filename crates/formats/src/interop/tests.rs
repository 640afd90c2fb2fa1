//! Files that PyTorch and safetensors wrote, and malicious files. `tests/golden/weights.py` created them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::*;

/// The content of the files according to PyTorch.
#[derive(Deserialize)]
struct Golden {
    files: BTreeMap<String, BTreeMap<String, Expected>>,
}

#[derive(Deserialize)]
struct Expected {
    shape: Vec<usize>,
    values: Vec<f32>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/weights")
}

fn golden() -> Golden {
    serde_json::from_slice(&std::fs::read(folder().join("weights.json")).unwrap()).unwrap()
}

/// Writes bytes to a temporary file and reads it.
fn read_bytes(bytes: &[u8], name: &str) -> Result<Weights, Error> {
    let path = std::env::temp_dir().join(format!("trireme-interop-{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let read = read(&path, None);
    std::fs::remove_file(&path).unwrap();
    read
}

#[test]
fn read_returns_every_value_of_the_golden_files() {
    let golden = golden();
    assert_eq!(golden.files.len(), 5);
    for (file, expected) in &golden.files {
        let weights = read(&folder().join(file), None).unwrap_or_else(|e| panic!("{e}"));
        assert!(weights.model.is_none() && weights.tensors.len() == expected.len(), "{file}");
        for (name, shape, values) in &weights.tensors {
            let expected = expected.get(name).unwrap_or_else(|| panic!("{file}: {name}"));
            assert_eq!((shape, values), (&expected.shape, &expected.values), "{file}: {name}");
        }
    }
    assert_eq!(read(&folder().join("plain.safetensors"), None).unwrap().format, "safetensors");
}

#[test]
fn a_pickle_that_calls_a_function_is_refused_by_its_name() {
    for file in ["evil.pth", "evil_old.pth"] {
        let error = read(&folder().join(file), None).unwrap_err();
        let Error::Unsupported { path, text } = &error else { panic!("{error}") };
        assert!(path.ends_with(file) && text.contains("posix.system") && text.contains("executed"), "{error}");
    }
}

/// Truncates every file at many lengths and flips a bit in every byte. Reading may fail or return other values, but
/// must not panic.
#[test]
fn damaged_files_do_not_panic() {
    let files = ["views.pth", "old.pth", "training.pth", "plain.safetensors", "evil.pth"];
    std::thread::scope(|scope| {
        for file in files {
            scope.spawn(move || {
                let bytes = std::fs::read(folder().join(file)).unwrap();
                for at in 0..bytes.len() {
                    if at % 7 == 0 || at + 64 > bytes.len() {
                        assert!(read_bytes(&bytes[..at], file).is_err(), "{file} cut at {at}");
                    }
                    let mut changed = bytes.clone();
                    changed[at] ^= 1 << (at % 8);
                    let _ = read_bytes(&changed, file);
                }
            });
        }
    });
}

#[test]
fn unknown_formats_are_refused_with_a_list_of_the_supported_ones() {
    let error = read_bytes(b"GIF89a", "gif").unwrap_err();
    let Error::Unknown { known, .. } = &error else { panic!("{error}") };
    assert!(["safetensors", ".pth", "model.h5"].iter().all(|format| known.contains(format)), "{known}");
    assert!(matches!(read_bytes(b"", "empty"), Err(Error::Unknown { .. })));
    assert!(matches!(read(Path::new("/nowhere/model.pth"), None), Err(Error::Io { .. })));
    let keyed = read(&folder().join("plain.safetensors"), Some("a")).unwrap_err().to_string();
    assert!(["plain.safetensors", "init.key", "--key"].iter().all(|part| keyed.contains(part)), "{keyed}");
    // a directory that is not the output of a run
    assert!(matches!(read(&folder(), None), Err(Error::Io { .. })));
}

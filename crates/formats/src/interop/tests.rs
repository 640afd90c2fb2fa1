//! Files that PyTorch and safetensors wrote, and malicious files. `tests/golden/weights.py` created them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loaders::{Bands, Dtype, LabelKind, Target};
use net::{Linear, NetSpec, Pool, Shape};
use serde::Deserialize;

use super::export::{Format, Settings, Trained};
use super::*;
use crate::checkpoint::ModelFile;
use crate::temporary::Temporary;

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
    let Temporary(path) = &Temporary::new(name);
    std::fs::write(path, bytes).unwrap();
    read(path, None)
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

/// Exports a model with one layer to `out`.
fn export_model(model: ModelFile, format: Format, out: &Path) {
    let mut net = NetSpec::new("two", Shape::image(3, 8, 8));
    let mean = net.add("mean", Pool::global(), net.image());
    net.add("fc1", Linear::new(2), mean);
    let settings = Settings { format, half: false, fold: false, preprocess: false, force: false };
    export::write(Trained::new(net, model).unwrap(), out, &settings).unwrap();
}

/// Foreign files have no description.
#[test]
fn exports_have_the_description_of_their_model() {
    let target = |name: &str| Target { name: name.into(), mean: 10.0, std: 4.0 };
    let numbers = ModelFile { targets: vec![target("cat"), target("dog")], ..ModelFile::sample() };
    let Temporary(exports) = &Temporary::new("exports");
    std::fs::create_dir(exports).unwrap();
    for model in [ModelFile::sample(), ModelFile { multi_label: true, ..ModelFile::sample() }, numbers] {
        for (format, name) in [(Format::Onnx, "net.onnx"), (Format::Safetensors, "net.safetensors")] {
            let out = exports.join(name);
            export_model(model.clone(), format, &out);
            let weights = read(&out, None).unwrap();
            assert!(weights.model.is_none(), "{name}");
            let found = weights.description().unwrap();
            assert_eq!((found.label_kind(), &found.targets), (model.label_kind(), &model.targets), "{name}");
            assert_eq!((&found.classes, &found.preprocess), (&model.classes, &model.preprocess), "{name}");
            assert_eq!((found.image, &found.mean, &found.std), (model.image, &model.mean, &model.std), "{name}");
        }
    }
    assert_eq!(read(&folder().join("plain.safetensors"), None).unwrap().description(), None);
}

#[test]
fn weights_of_exports_with_a_damaged_description_can_be_read() {
    let target = |name: &str| Target { name: name.into(), mean: 10.0, std: 4.0 };
    let model = ModelFile { targets: vec![target("cat"), target("dog")], ..ModelFile::sample() };
    let Temporary(exports) = &Temporary::new("damaged");
    std::fs::create_dir(exports).unwrap();
    for (format, name) in [(Format::Onnx, "net.onnx"), (Format::Safetensors, "net.safetensors")] {
        let out = exports.join(name);
        export_model(model.clone(), format, &out);
        let (whole, bytes) = (read(&out, None).unwrap(), std::fs::read(&out).unwrap());
        whole.check_description().unwrap();
        assert_eq!(whole.exported.as_ref().unwrap().warning(&out), None, "{name}");
        for (text, other, key) in [("[0.5]", "[0.5}", "trireme.mean"), (":10.0", ":10,0", "trireme.targets")] {
            let at = bytes.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
            let mut damaged = bytes.clone();
            damaged[at..][..other.len()].copy_from_slice(other.as_bytes());
            let weights = read_bytes(&damaged, name).unwrap();
            assert_eq!((&weights.tensors, weights.description()), (&whole.tensors, None), "{name} {key}");
            let exported = weights.exported.as_ref().unwrap();
            assert_eq!(exported.labels, LabelKind::Numbers, "{name} {key}");
            let warning = exported.warning(&weights.path).unwrap();
            let refusal = weights.check_description().unwrap_err().to_string();
            assert!([&warning, &refusal].iter().all(|text| text.contains(name) && text.contains(key)), "{warning}");
        }
    }
}

/// The graph of such an export normalises the images. A model with the transforms of its metadata would do it again.
#[test]
fn exports_with_preprocess_are_refused() {
    let Temporary(path) = &Temporary::new("stored.onnx");
    for dtype in [Dtype::U8, Dtype::F32] {
        let mut net = NetSpec::new("two", Shape::image(3, 8, 8));
        let mean = net.add("mean", Pool::global(), net.image());
        net.add("fc1", Linear::new(2), mean);
        let bands = Bands { dtype, channels: Some(3), ..Bands::default() };
        let preprocess = vec!["normalize(0.5, 0.25)".to_string()];
        let model = ModelFile { bands, preprocess, ..ModelFile::sample() };
        let settings = Settings { format: Format::Onnx, half: false, fold: false, preprocess: true, force: true };
        export::write(Trained::new(net, model).unwrap(), path, &settings).unwrap();
        let error = read(path, None).unwrap_err().to_string();
        assert!(error.contains("input image") && error.contains("export without --preprocess"), "{dtype}: {error}");
    }
}

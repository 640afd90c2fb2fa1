//! Model files on a real disk. Files read back as they were written, equal models have equal bytes, and damaged files are
//! errors that change nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::run_state::{LossScale, PlateauState};
use formats::checkpoint::{
    Best, Error, LabelScores, LayerKind, LayerWeights, ModelFile, Progress, RuleStates, StateFile, StopState, Sums,
};
use loaders::random::philox4x32;

use support::mentions;
use support::program::{Folder, files, with_file_limit};

fn tensor(name: &str, shape: &[usize]) -> (String, Vec<usize>, Vec<f32>) {
    let length: usize = shape.iter().product();
    // Values with random bits, without NaN and infinity: a file must preserve every bit pattern, but NaN is not equal
    // to itself.
    let values = (0..length as u32).map(|i| f32::from_bits(philox4x32([i, 0, 0, 0], [7, 7])[0] & 0xbfff_ffff));
    (name.into(), shape.to_vec(), values.collect())
}

fn kind(name: &str, flatten: Option<[usize; 3]>) -> LayerKind {
    LayerKind { flatten, ..LayerKind::named(name).unwrap() }
}

fn layer(name: &str, kind: LayerKind, tensors: &[(&str, &[usize])]) -> LayerWeights {
    let tensors = tensors.iter().map(|(name, shape)| tensor(name, shape)).collect();
    LayerWeights { name: name.into(), kind, tensors }
}

fn model() -> ModelFile {
    let norm: [(&str, &[usize]); 4] = [("weight", &[4]), ("bias", &[4]), ("running_mean", &[4]), ("running_var", &[4])];
    let flat = kind("linear", Some([4, 2, 3]));
    ModelFile {
        network: "small".into(),
        definition: String::new(),
        input: [3, 8, 12],
        image: [3, 12, 12],
        classes: ["T-shirt/top", "Größe", ""].map(String::from).to_vec(),
        targets: Vec::new(),
        multi_label: false,
        preprocess: vec!["center_crop(8)".into(), "normalize".into()],
        bands: Default::default(),
        mean: vec![0.4914, 0.4822, 0.1 + 0.2],
        std: vec![0.2470, 0.2435, f64::MIN_POSITIVE],
        recipe: "model = \"small\"\n# ümlaut\n".repeat(4_000),
        scores: BTreeMap::from([("validation/top1".into(), 0.913), ("test.loss".into(), 0.25)]),
        epoch: 3,
        step: 2_814,
        layers: vec![
            layer("layer1.0.conv1", kind("conv", None), &[("weight", &[4, 3, 3, 5]), ("bias", &[4])]),
            layer("layer1.0.bn1", kind("norm", None), &norm),
            layer("fc1", flat, &[("weight", &[5, 24]), ("bias", &[5])]),
            layer("fc2", kind("linear", None), &[("weight", &[3, 5]), ("bias", &[3])]),
            layer("layer1.0.norm", kind("layer_norm", None), &[("weight", &[4]), ("bias", &[4])]),
            layer("layer1.0.groups", kind("group_norm", None), &[("weight", &[4]), ("bias", &[4])]),
            layer("layer1.0", kind("layer_scale", None), &[("layer_scale", &[4])]),
        ],
        ema: vec![layer("fc1", flat, &[("weight", &[7, 24])]), layer("layer1.0.bn1", kind("norm", None), &norm)],
    }
}

/// Returns a folder and the path of a model in it, which does not exist yet.
fn place() -> (Folder, PathBuf) {
    let folder = Folder::new();
    let path = folder.path().join("model.h5");
    (folder, path)
}

#[test]
fn progress_is_read_back() {
    let folder = Folder::new();
    let path = folder.path().join("step-00002814.h5");
    // the algorithms of a large network exceed the 64 KB limit of attributes in HDF5's earliest format
    let algorithms = "a GPU, libraries\n65 2=5 13=1\tan operation\n".repeat(3_000);
    let scale = LossScale { scale: 2f32.powi(-10), good: 1_999, bad: 0, lost: 70_000 };
    let sums = Sums { loss: 0.1 + 0.2, top1: 7.0, top5: 9.0, count: 11, several: None, numbers: None };
    let several = Sums { several: Some(LabelScores { map: 1.0 / 3.0, micro_f1: 0.1, macro_f1: 0.7 }), ..sums };
    let begun = Progress { epoch: 3, step_of_epoch: 1, step: 2_814, samples: 90_000, seed: 7, ..Progress::default() };
    let on_a_gpu =
        Progress { loss_scale: Some(scale), algorithms, epoch_sums: sums, score: Some(sums), ..begun.clone() };
    let rules = RuleStates {
        stop: Some(StopState { best: 0.1 + 0.2, last: f64::MIN_POSITIVE, since: 7 }),
        plateau: Some(PlateauState { best: 1.0 / 3.0, since: 1, drops: 2, cooldown: 3 }),
        seconds: Some(12.3),
    };
    let best = Some(Best { by: "ema.macro_f1".into(), score: 2.0 / 3.0, step: 1_407 });
    let watched = Progress { rules, best, teacher: "0123abcd".into(), ..begun.clone() };
    let labelled = Progress { score: Some(several), ..begun.clone() };
    for progress in [begun, on_a_gpu, watched, labelled] {
        let model = ModelFile { scores: BTreeMap::new(), ..model() };
        let slots = vec![("momentum_buffer".into(), vec![tensor("fc2.weight", &[3, 5])])];
        let state = StateFile { model, slots, residuals: Vec::new(), progress };
        state.write(&path).unwrap();
        let back = StateFile::read(&path).unwrap();
        assert_eq!(StateFile::read_progress(&path).unwrap(), back.progress);
        assert_eq!((back.progress, back.slots), (state.progress, state.slots));
    }
}

#[test]
fn what_is_written_comes_back() {
    let (folder, path) = place();
    let mut model = model();
    model.write(&path).unwrap();
    assert_eq!(ModelFile::read(&path).unwrap(), model);
    assert_eq!(files(&folder.at("")).len(), 1, "only the model must remain");
    // writes and reads a multi-label model
    model.multi_label = true;
    model.write(&path).unwrap();
    assert_eq!(ModelFile::read(&path).unwrap(), model);
    model.multi_label = false;
    // overwrites the file with a model in which everything optional is empty
    model.classes.clear();
    model.preprocess.clear();
    model.mean.clear();
    model.scores.clear();
    model.recipe.clear();
    model.layers.clear();
    model.ema.clear();
    model.write(&path).unwrap();
    assert_eq!(ModelFile::read(&path).unwrap(), model);
}

#[test]
fn every_bit_pattern_comes_back() {
    let (_folder, path) = place();
    let patterns = [0x7fc0_0001u32, 0xff80_0000, 0x8000_0000, 1, 0x7f80_0001];
    let mut model = model();
    model.layers[0].tensors[1] = ("bias".into(), vec![5], patterns.map(f32::from_bits).to_vec());
    model.write(&path).unwrap();
    let read = ModelFile::read(&path).unwrap();
    let bits: Vec<u32> = read.layers[0].tensors[1].2.iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits, patterns);
}

#[test]
fn many_classes_and_long_recipes_fit() {
    let (_folder, path) = place();
    let mut model = model();
    // ImageNet-21k exceeds the 64 KB limit of attributes in HDF5's earliest format.
    model.classes = (0..21_841).map(|i| format!("class number {i}")).collect();
    let layer = model.layers[3].clone();
    model.layers.extend((0..700).map(|i| LayerWeights { name: format!("blocks.{i}.conv"), ..layer.clone() }));
    model.write(&path).unwrap();
    assert_eq!(ModelFile::read(&path).unwrap(), model);
}

#[test]
fn equal_models_make_equal_bytes() {
    let folder = Folder::new();
    let (first, second) = (folder.path().join("a.h5"), folder.path().join("b.h5"));
    model().write(&first).unwrap();
    // HDF5 stores times in seconds, so a time in the file would make a difference.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let noise: Vec<Vec<u8>> = (1..2_000).map(|i| vec![0xa5; i]).collect();
    drop(noise);
    model().write(&second).unwrap();
    assert!(std::fs::read(first).unwrap() == std::fs::read(second).unwrap());
}

#[test]
fn a_file_cut_short_anywhere_is_an_error() {
    let (_folder, path) = place();
    model().write(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let ends = (0..64).chain((64..whole.len()).step_by(997)).chain(whole.len() - 40..whole.len());
    for end in ends {
        std::fs::write(&path, &whole[..end]).unwrap();
        let error = ModelFile::read(&path).expect_err("a file cut short was read");
        assert!(
            matches!(error, Error::Foreign { .. } | Error::Truncated { .. } | Error::Unsealed { .. }),
            "{end}: {error}"
        );
        assert!(error.to_string().contains("model.h5"), "{error}");
    }
}

#[test]
fn flipped_bytes_are_an_error() {
    let (_folder, path) = place();
    model().write(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for round in 0..500 {
        let [at, bits, ..] = philox4x32([round, 1, 0, 0], [1, 2]);
        let at = at as usize % whole.len();
        let mut changed = whole.clone();
        changed[at] ^= bits as u8 | 1;
        std::fs::write(&path, changed).unwrap();
        let error = ModelFile::read(&path).expect_err("a changed file was read").to_string();
        assert!(error.contains("model.h5"), "byte {at}: {error}");
    }
}

#[test]
fn other_files_are_no_models() {
    let (folder, path) = place();
    let missing = ModelFile::read(&path).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
    for bytes in [&b""[..], b"model = \"resnet20\"\n", &[0; 4_096]] {
        std::fs::write(&path, bytes).unwrap();
        let error = ModelFile::read(&path).unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("model.h5") && error.to_string().contains("trireme train"), "{error}");
    }
    let folder_as_file = ModelFile::read(folder.path()).unwrap_err();
    assert!(matches!(folder_as_file, Error::Io { .. }), "{folder_as_file}");
}

#[test]
fn what_cannot_be_read_back_is_not_written() {
    let (folder, path) = place();
    let refused = |change: fn(&mut ModelFile)| {
        let mut model = model();
        change(&mut model);
        let error = model.write(&path).unwrap_err();
        assert_eq!(files(&folder.at("")).len(), 0);
        error
    };
    let of_layer = |change: fn(&mut ModelFile), name: &str, parts: &[&str]| match refused(change) {
        Error::Layer { layer, text } if layer == name => mentions(text, parts),
        other => panic!("{other}"),
    };
    of_layer(|m| m.layers[0].name = "a/b".into(), "a/b", &["HDF5", "slash"]);
    of_layer(|m| m.layers[1].name = m.layers[0].name.clone(), "layer1.0.conv1", &["two layers"]);
    let shape = ["weight", "[4, 3, 3, 3]", "180 values"];
    of_layer(|m| m.layers[0].tensors[0].1 = vec![4, 3, 3, 3], "layer1.0.conv1", &shape);
    let inputs = ["weight", "24 inputs", "4 x 2 x 2"];
    of_layer(|m| m.layers[2].kind = kind("linear", Some([4, 2, 2])), "fc1", &inputs);
    let error = refused(|m| m.recipe = "a\0b".into());
    assert!(matches!(&error, Error::Hdf5 { action, .. } if action.ends_with("/trireme/recipe")), "{error}");
}

/// A limit on the file size has the same effect as a full disk: a write fails with a system error.
#[test]
fn a_full_disk_leaves_nothing_behind() {
    const PATH: &str = "TRIREME_TEST_MODEL";
    if let Ok(path) = std::env::var(PATH) {
        let error = model().write(Path::new(&path)).unwrap_err();
        let weights: usize =
            [model().layers, model().ema].iter().flatten().flat_map(|l| &l.tensors).map(|t| 4 * t.2.len()).sum();
        assert!(matches!(error, Error::FileLimit { bytes, .. } if bytes == weights as u64), "{error}");
        return;
    }
    let (folder, path) = place();
    std::fs::write(&path, "the last good model").unwrap();
    let this = std::env::current_exe().unwrap();
    let run = with_file_limit(0, 8, this)
        .args(["checkpoint::a_full_disk_leaves_nothing_behind", "--exact", "--nocapture"])
        .env(PATH, &path)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(std::fs::read(&path).unwrap(), b"the last good model");
    assert_eq!(files(&folder.at("")).len(), 1);
}

//! The user's own networks with the real binary: TOML and ONNX files as `model`. Later commands use the copies in the
//! output folder and do not need these files.

use std::fs;
use std::path::Path;

use formats::checkpoint::ModelFile;

use support::program::{events, files, run};
use support::small_run::{RECIPE, SmallRun};

/// Creates a small run with this network file and the codec "exact". The network file is next to the recipe.
fn setting(name: &str, text: &str) -> SmallRun {
    let (setting, _) = SmallRun::new();
    setting.folder.write(name, text);
    setting.folder.write("recipe.toml", &recipe(name));
    setting
}

fn recipe(model: &str) -> String {
    RECIPE.replace("lenet-caffe", model) + "\n[reduce]\ncodec = \"exact\"\n"
}

/// Returns a network of the catalogue as a TOML file.
fn lenet() -> String {
    run(0, &["models", "lenet-caffe", "--toml"]).succeeded().stdout
}

fn model(out: &str) -> ModelFile {
    ModelFile::read(&Path::new(out).join("model.h5")).unwrap()
}

#[test]
fn a_file_trains_as_the_catalogue_does_on_any_ranks() {
    let setting = setting("own.toml", &lenet());
    setting.train(0, &["--max-steps", "3"]).succeeded();
    let own = model(&setting.out);
    assert_eq!((own.network.as_str(), own.definition.is_empty()), ("own.toml", false));
    assert_eq!(fs::read_to_string(setting.folder.at("out/own.toml")).unwrap(), lenet());
    let two = setting.folder.at("two");
    let again = SmallRun { out: two.clone(), ..setting };
    again.train(2, &["--max-steps", "3"]).succeeded();
    assert!(fs::read(Path::new(&two).join("model.h5")).unwrap() == fs::read(again.folder.at("out/model.h5")).unwrap());
    let named = SmallRun { out: again.folder.at("named"), ..again };
    named.folder.write("recipe.toml", &recipe("lenet-caffe"));
    named.train(0, &["--max-steps", "3"]).succeeded();
    assert_eq!(model(&named.out).layers, own.layers);
}

#[test]
fn the_file_is_not_needed_again() {
    let setting = setting("own.toml", &lenet());
    setting.train(2, &["--max-steps", "3", "--set", "checkpoint.every=2 steps"]).succeeded();
    let whole = SmallRun { out: setting.folder.at("whole"), ..setting };
    whole.train(0, &[]).succeeded();
    let setting = SmallRun { out: whole.folder.at("out"), ..whole };
    fs::remove_file(setting.folder.at("own.toml")).unwrap();
    fs::remove_file(setting.folder.at("out/model.h5")).unwrap();
    for ranks in [0, 2] {
        let plan = setting.train(ranks, &["--resume", "auto", "--dry-run"]).succeeded();
        assert!(plan.stdout.contains("ip2") || plan.stdout.contains("fc2"), "{}", plan.stdout);
    }
    setting.train(2, &["--resume", "auto"]).succeeded();
    let bytes = |out: &str| fs::read(setting.folder.at(out)).unwrap();
    assert!(bytes("out/model.h5") == bytes("whole/model.h5"));
    run(2, &["eval", &setting.out, "--data", &setting.data]).succeeded();
    run(0, &["export", &setting.out, "--to", "onnx", "-o", &setting.folder.at("own.onnx")]).succeeded();
    run(0, &["export", &setting.out, "--to", "safetensors", "-o", &setting.folder.at("own.safetensors")]).succeeded();
    // the copy of the recipe in the output folder names the copy of the network; training with it results in the same
    // model
    let copy = setting.folder.at("out/recipe.toml");
    let out = setting.folder.at("copy");
    run(0, &["train", &copy, "--data", &setting.data, "--out", &out, "--threads", "1"]).succeeded();
    assert!(bytes("copy/model.h5") == bytes("whole/model.h5"));
}

#[test]
fn a_file_that_has_changed_does_not_change_the_run() {
    let setting = setting("own.toml", &lenet());
    setting.train(0, &["--max-steps", "3", "--set", "checkpoint.every=2 steps"]).succeeded();
    let text = lenet();
    assert!(text.contains("channels = 20"));
    setting.folder.write("own.toml", &text.replace("channels = 20", "channels = 19"));
    fs::remove_file(setting.folder.at("out/model.h5")).unwrap();
    let ended = setting.train(2, &["--resume", "auto"]).succeeded();
    ended.says(&["warning: ", "own.toml", "has changed"]);
    assert_eq!(model(&setting.out).layers[0].tensors[0].1, [20, 1, 5, 5]);
}

#[test]
fn errors_in_a_network_are_reported_before_anything_is_written() {
    let text = lenet();
    let last = text.lines().count() - 1;
    let setting = setting("own.toml", &text.replace("features = \"classes\"", "features = 3"));
    let line = format!("own.toml:{last}: node ");
    setting.refused(2, &[], &[&line, "3, ", "10 scores"]);
    setting.folder.write("own.toml", &text.replace("kernel = 5", "kernel = 50"));
    setting.refused(2, &[], &["own.toml:4: node ", "50x50", "1x28x28"]);
    fs::remove_file(setting.folder.at("own.toml")).unwrap();
    setting.refused(2, &[], &["the network", "own.toml", "No such file"]);
    setting.folder.write("recipe.toml", &recipe("own.tml"));
    setting.refused(2, &[], &["\"own.tml\"", "`trireme models`", ".toml or .onnx"]);
    setting.folder.write("own.onnx", "no model");
    setting.folder.write("recipe.toml", &recipe("own.onnx"));
    setting.refused(2, &[], &["own.onnx"]);
}

#[test]
fn somebody_elses_file_in_the_folder_stays() {
    let setting = setting("own.toml", &lenet());
    fs::create_dir(&setting.out).unwrap();
    setting.folder.write("out/own.toml", "precious");
    let ended = setting.train(0, &["--resume", "auto"]);
    ended.failed(2, &["own.toml", "another network", "--out"]);
    assert_eq!(fs::read_to_string(setting.folder.at("out/own.toml")).unwrap(), "precious");
}

#[test]
fn an_onnx_file_is_trained_on_from_its_weights() {
    let (setting, _) = SmallRun::new();
    setting.train(0, &["--max-steps", "2"]).succeeded();
    let began = model(&setting.out);
    run(0, &["export", &setting.out, "--to", "onnx", "-o", &setting.folder.at("own.onnx")]).succeeded();
    setting.folder.write("recipe.toml", &recipe("own.onnx"));
    let still = SmallRun { out: setting.folder.at("still"), ..setting };
    // with such a small learning rate, no weight changes by more than 1e-20
    let still_set = ["--max-steps", "1", "--set", "schedule.base_lr=1e-30"];
    let ended = still.train(0, &still_set).succeeded();
    ended.says(&["8 tensors", "own.onnx"]);
    let weights = |model: &ModelFile| -> Vec<Vec<f32>> {
        model.layers.iter().flat_map(|layer| layer.tensors.iter().map(|tensor| tensor.2.clone())).collect()
    };
    for (after, before) in weights(&model(&still.out)).iter().zip(weights(&began)) {
        assert!(after.iter().zip(before).all(|(a, b)| (a - b).abs() <= 1e-20));
    }
    assert_eq!(weights(&model(&still.out)).len(), weights(&began).len());
    let [one, two] = [0, 2].map(|ranks| {
        let out = still.folder.at(&format!("on{ranks}"));
        let args = ["train", &still.recipe, "--data", &still.data, "--out", &out, "--threads", "1", "--max-steps", "3"];
        run(ranks, &args).succeeded();
        fs::read(Path::new(&out).join("model.h5")).unwrap()
    });
    assert!(one == two, "the model differs on two ranks");
    assert_eq!(files(&still.folder.at("on2")).iter().filter(|file| file.as_str() == "own.onnx").count(), 1);
    let random = SmallRun { out: still.folder.at("random"), ..still };
    random.train(0, &[&still_set[..], &["--set", "model_weights=false"]].concat()).succeeded();
    assert_ne!(weights(&model(&random.out)), weights(&began));
    // the run can resume and be evaluated without the original ONNX file
    fs::remove_file(random.folder.at("own.onnx")).unwrap();
    let on = SmallRun { out: random.folder.at("on2"), ..random };
    fs::remove_file(on.folder.at("on2/model.h5")).unwrap();
    on.train(2, &["--resume", "auto"]).succeeded();
    assert_eq!(events(&on.out, "end").len(), 1);
    run(0, &["eval", &on.out, "--data", &on.data]).succeeded();
}

/// Windows that are shifted, or that span the plane, are fixed in an ONNX graph, but would differ at another image size.
#[test]
fn an_onnx_file_with_windows_needs_its_own_image_size() {
    let text = r#"
input = [1, 28, 28]
classes = 10
nodes = [
    { name = "patches", op = "conv", channels = 8, kernel = 4, stride = 4, bias = true },
    { name = "qkv", op = "conv", channels = 24, kernel = 1, bias = true },
    { name = "attention", op = "attention", heads = 2, window = 7, position_bias = "table" },
    { name = "avgpool", op = "avgpool" },
    { name = "flatten", op = "flatten" },
    { name = "head", op = "linear", features = "classes" },
]
"#;
    let setting = setting("own.toml", text);
    setting.train(0, &["--max-steps", "1"]).succeeded();
    run(0, &["export", &setting.out, "--to", "onnx", "-o", &setting.folder.at("own.onnx")]).succeeded();
    setting.folder.write("recipe.toml", &recipe("own.onnx"));
    let other = SmallRun { out: setting.folder.at("other"), ..setting };
    let larger = [
        "--set",
        "augment.train=[\"resize(56)\", \"normalize\"]",
        "--set",
        "augment.eval=[\"resize(56)\", \"normalize\"]",
    ];
    other.refused(2, &larger, &["own.onnx", "attention in windows", "1x28x28", "1x56x56", "augment.train"]);
    other.train(0, &["--max-steps", "1"]).succeeded();
}

#[test]
fn models_shows_files_too() {
    let setting = setting("own.toml", &lenet());
    let shown = run(0, &["models", &setting.folder.at("own.toml")]).succeeded().stdout;
    assert_eq!(shown, run(0, &["models", "lenet-caffe"]).succeeded().stdout);
    setting.train(0, &["--max-steps", "1"]).succeeded();
    let onnx = setting.folder.at("own.onnx");
    run(0, &["export", &setting.out, "--to", "onnx", "-o", &onnx]).succeeded();
    let ended = run(0, &["models", &onnx]).succeeded();
    assert!(ended.stderr.contains("nodes are supported") && ended.stdout.contains("431080"), "{}", ended.stdout);
    let mut bytes = fs::read(&onnx).unwrap();
    let at = bytes.windows(7).position(|part| part == b"MaxPool").unwrap();
    bytes[at..at + 7].copy_from_slice(b"LpPoool");
    fs::write(&onnx, bytes).unwrap();
    run(0, &["models", &onnx]).failed(2, &["node pool1 (LpPoool)", "not supported"]);
}

//! The user's own networks with the real binary: TOML and ONNX files as `model`. Later commands use the copies in the
//! output folder and do not need these files.

use std::fs;
use std::path::Path;

use support::images::DIGITS;
use support::program::{events, files, run, sets};
use support::setting::Setting;
use support::small_run::RECIPE;
use support::weights::{model, values};

/// Creates a setting with this network file and the codec "exact". The network file is next to the recipe.
fn setting(name: &str, text: &str) -> Setting {
    let setting = Setting::new(&recipe(name), DIGITS, [48, 10]);
    setting.folder.write(name, text);
    setting
}

/// Checks that training fails with exit code 2 and one line with these parts, and does not create the output folder.
#[track_caller]
fn refused(setting: &Setting, more: &[&str], parts: &[&str]) {
    for ranks in [0, 2] {
        setting.train("refused", ranks, more).failed(2, parts);
        assert!(!Path::new(&setting.out("refused")).exists());
    }
}

fn recipe(model: &str) -> String {
    RECIPE.replace("lenet-caffe", model) + "\n[reduce]\ncodec = \"exact\"\n"
}

fn lenet() -> String {
    run(0, &["models", "lenet-caffe", "--toml"]).succeeded().stdout
}

#[test]
fn a_file_trains_as_the_catalogue_does_on_any_ranks() {
    let setting = setting("own.toml", &lenet());
    let own = model(&setting.trained("out", 0, &["--max-steps", "3"]));
    assert_eq!((own.network.as_str(), own.definition.is_empty()), ("own.toml", false));
    assert_eq!(fs::read_to_string(setting.out("out/own.toml")).unwrap(), lenet());
    setting.trained("two", 2, &["--max-steps", "3"]);
    assert!(setting.model("two") == setting.model("out"));
    setting.folder.write("recipe.toml", recipe("lenet-caffe"));
    assert_eq!(model(&setting.trained("named", 0, &["--max-steps", "3"])).layers, own.layers);
}

#[test]
fn the_file_is_not_needed_again() {
    let setting = setting("own.toml", &lenet());
    let out = setting.trained("out", 2, &["--max-steps", "3", "--set", "checkpoint.every=2 steps"]);
    setting.trained("whole", 0, &[]);
    fs::remove_file(setting.folder.at("own.toml")).unwrap();
    fs::remove_file(setting.out("out/model.h5")).unwrap();
    for ranks in [0, 2] {
        let plan = setting.train("out", ranks, &["--resume", "auto", "--dry-run"]).succeeded();
        assert!(plan.stdout.contains("ip2") || plan.stdout.contains("fc2"), "{}", plan.stdout);
    }
    setting.resumed("out", 2, &[]);
    assert!(setting.model("out") == setting.model("whole"));
    run(2, &["eval", &out, "--data", &setting.data]).succeeded();
    run(0, &["export", &out, "--to", "onnx", "-o", &setting.folder.at("own.onnx")]).succeeded();
    run(0, &["export", &out, "--to", "safetensors", "-o", &setting.folder.at("own.safetensors")]).succeeded();
    // the copy of the recipe in the output folder names the copy of the network; training with it results in the same model
    let (recipe, copy) = (setting.out("out/recipe.toml"), setting.out("copy"));
    run(0, &["train", &recipe, "--data", &setting.data, "--out", &copy, "--threads", "1"]).succeeded();
    assert!(setting.model("copy") == setting.model("whole"));
}

#[test]
fn a_file_that_has_changed_does_not_change_the_run() {
    let setting = setting("own.toml", &lenet());
    let out = setting.trained("out", 0, &["--max-steps", "3", "--set", "checkpoint.every=2 steps"]);
    let text = lenet();
    assert!(text.contains("channels = 20"));
    setting.folder.write("own.toml", text.replace("channels = 20", "channels = 19"));
    setting.resumed("out", 2, &[]).says(&["warning: ", "own.toml", "has changed"]);
    assert_eq!(model(&out).layers[0].tensors[0].1, [20, 1, 5, 5]);
}

#[test]
fn errors_in_a_network_are_reported_before_anything_is_written() {
    let text = lenet();
    let last = text.lines().count() - 1;
    let setting = setting("own.toml", &text.replace("features = \"classes\"", "features = 3"));
    let line = format!("own.toml:{last}: node ");
    refused(&setting, &[], &[&line, "3, ", "10 scores"]);
    setting.folder.write("own.toml", text.replace("kernel = 5", "kernel = 50"));
    refused(&setting, &[], &["own.toml:4: node ", "50x50", "1x28x28"]);
    fs::remove_file(setting.folder.at("own.toml")).unwrap();
    refused(&setting, &[], &["the network", "own.toml", "No such file"]);
    setting.folder.write("recipe.toml", recipe("own.tml"));
    refused(&setting, &[], &["\"own.tml\"", "`trireme models`", ".toml or .onnx"]);
    setting.folder.write("own.onnx", "no model");
    setting.folder.write("recipe.toml", recipe("own.onnx"));
    refused(&setting, &[], &["own.onnx"]);
}

#[test]
fn somebody_elses_file_in_the_folder_stays() {
    let setting = setting("own.toml", &lenet());
    fs::create_dir(setting.out("out")).unwrap();
    setting.folder.write("out/own.toml", "precious");
    setting.train("out", 0, &["--resume", "auto"]).failed(2, &["own.toml", "another network", "--out"]);
    assert_eq!(fs::read_to_string(setting.folder.at("out/own.toml")).unwrap(), "precious");
}

#[test]
fn an_onnx_file_is_trained_on_from_its_weights() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    let out = setting.trained("out", 0, &["--max-steps", "2"]);
    let began = values(&model(&out).layers);
    run(0, &["export", &out, "--to", "onnx", "-o", &setting.folder.at("own.onnx")]).succeeded();
    setting.folder.write("recipe.toml", recipe("own.onnx"));
    // with such a small learning rate, no weight changes by more than 1e-20
    let still = ["--max-steps", "1", "--set", "schedule.base_lr=1e-30"];
    let ended = setting.train("still", 0, &still).succeeded();
    ended.says(&["8 tensors", "own.onnx"]);
    ended.says(&["warning: augment.train", "\"normalize\"", "weights of own.onnx"]);
    let after = values(&model(&setting.out("still")).layers);
    assert_eq!(after.len(), began.len());
    assert!(after.iter().zip(&began).all(|(a, b)| (a - b).abs() <= 1e-20));
    for (out, ranks) in [("on0", 0), ("on2", 2)] {
        setting.trained(out, ranks, &["--max-steps", "3"]);
    }
    assert!(setting.model("on0") == setting.model("on2"), "the model differs on two ranks");
    let on = setting.out("on2");
    assert_eq!(files(&on).iter().filter(|file| file.as_str() == "own.onnx").count(), 1);
    let silent = |out: &str, keys: &[&str]| {
        let ended = setting.train(out, 0, &[&still[..], &sets(keys)].concat()).succeeded();
        assert!(!ended.stderr.contains("weights of own.onnx"), "{}", ended.stderr);
    };
    silent("random", &["model_weights=false"]);
    assert_ne!(values(&model(&setting.out("random")).layers), began);
    let lists = ["train", "eval"].map(|list| format!("augment.{list}=[\"normalize(0.4, 0.3)\"]"));
    silent("numbers", &[&lists[0], &lists[1]]);
    // a run that continues a copied checkpoint gets the file that the recipe names
    fs::create_dir_all(setting.out("copied/checkpoints")).unwrap();
    let step = "checkpoints/step-00000003.h5";
    fs::copy(format!("{on}/{step}"), setting.out(&format!("copied/{step}"))).unwrap();
    let ended = setting.train("copied", 0, &["--resume", "auto", "--max-steps", "4"]).succeeded();
    assert!(!ended.stderr.contains("cannot be trained again"), "{}", ended.stderr);
    assert!(fs::read(setting.out("copied/own.onnx")).unwrap() == fs::read(setting.folder.at("own.onnx")).unwrap());
    // the run can resume and be evaluated without the original ONNX file
    let bytes = fs::read(setting.folder.at("own.onnx")).unwrap();
    fs::remove_file(setting.folder.at("own.onnx")).unwrap();
    // a run that continues it in another folder gets the copy of the file, so its recipe can be trained again
    let from = format!("{on}/checkpoints/step-00000003.h5");
    let fresh = setting.trained("fresh", 2, &["--resume", &from, "--max-steps", "4"]);
    assert!(fs::read(format!("{fresh}/own.onnx")).unwrap() == bytes);
    let (again, copy) = (setting.out("again"), format!("{fresh}/recipe.toml"));
    run(0, &["train", &copy, "--data", &setting.data, "--out", &again, "--threads", "1", "--max-steps", "1"])
        .succeeded();
    setting.resumed("on2", 2, &[]);
    assert_eq!(events(&on, "end").len(), 1);
    run(0, &["eval", &on, "--data", &setting.data]).succeeded();
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
    let out = setting.trained("out", 0, &["--max-steps", "1"]);
    run(0, &["export", &out, "--to", "onnx", "-o", &setting.folder.at("own.onnx")]).succeeded();
    setting.folder.write("recipe.toml", recipe("own.onnx"));
    let larger = ["train", "eval"].map(|list| format!("augment.{list}=[\"resize(56)\", \"normalize\"]"));
    let larger = sets(&[&larger[0], &larger[1]]);
    refused(&setting, &larger, &["own.onnx", "attention in windows", "1x28x28", "1x56x56", "augment.train"]);
    setting.trained("other", 0, &["--max-steps", "1"]);
}

#[test]
fn models_shows_files_too() {
    let setting = setting("own.toml", &lenet());
    let shown = run(0, &["models", &setting.folder.at("own.toml")]).succeeded().stdout;
    assert_eq!(shown, run(0, &["models", "lenet-caffe"]).succeeded().stdout);
    let out = setting.trained("out", 0, &["--max-steps", "1"]);
    let onnx = setting.folder.at("own.onnx");
    run(0, &["export", &out, "--to", "onnx", "-o", &onnx]).succeeded();
    let ended = run(0, &["models", &onnx]).succeeded();
    assert!(ended.stderr.contains("nodes are supported") && ended.stdout.contains("431080"), "{}", ended.stdout);
    let mut bytes = fs::read(&onnx).unwrap();
    let at = bytes.windows(7).position(|part| part == b"MaxPool").unwrap();
    bytes[at..at + 7].copy_from_slice(b"LpPoool");
    fs::write(&onnx, bytes).unwrap();
    run(0, &["models", &onnx]).failed(2, &["node pool1 (LpPoool)", "not supported"]);
}

//! Exporting models with the real binary: which files are written, and which requests are refused. `make test-interop`
//! checks that other programs can use the files.

use std::fs;

use support::program::{Folder, files, run};
use support::small_run::SmallRun;
use support::weights;

/// Trains a model for one step and creates a folder for exports.
fn model(more: &[&str]) -> (SmallRun, Folder) {
    let setting = SmallRun::new();
    setting.train(0, &[&["--max-steps", "1"], more].concat()).succeeded();
    (setting, Folder::new())
}

#[test]
fn every_format_is_written_and_equal_models_are_equal_bytes() {
    let (setting, folder) = model(&[]);
    let cases = [
        ("onnx", "a.onnx", None),
        ("safetensors", "a.safetensors", Some("a.py")),
        ("keras", "a.keras", None),
        ("keras", "a.h5", None),
    ];
    for (to, name, beside) in cases {
        for half in [&[][..], &["--half"]] {
            let out = folder.at(name);
            let args = [&["export", &setting.out, "--to", to, "-o", &out, "--force"], half].concat();
            let printed = run(0, &args).succeeded();
            let expected =
                [Some(name), beside].into_iter().flatten().map(|name| folder.at(name) + "\n").collect::<String>();
            assert_eq!(printed.stdout, expected);
            assert!(printed.stderr.contains(&format!("model: {}/model.h5", setting.out)), "{}", printed.stderr);
            let first = fs::read(&out).unwrap();
            // export again at a later time, so that a stored time would differ; a .keras archive stores times in units
            // of two seconds
            std::thread::sleep(std::time::Duration::from_millis(if to == "keras" { 2_100 } else { 0 }));
            run(0, &args).succeeded();
            assert!(first == fs::read(&out).unwrap(), "{name}");
        }
    }
    assert_eq!(files(&folder.at("")), ["a.h5", "a.keras", "a.onnx", "a.py", "a.safetensors"]);
}

#[test]
fn safetensors_weights_match_the_model() {
    let (setting, folder) = model(&[]);
    let out = folder.at("net.safetensors");
    run(0, &["export", &setting.out, "--to", "safetensors", "-o", &out]).succeeded();
    let bytes = fs::read(&out).unwrap();
    let (header, start) = weights::header(&bytes);
    assert_eq!(start % 8, 0);
    let model = weights::model(&setting.out);
    let mut end = 0;
    for layer in &model.layers {
        for (field, shape, values) in &layer.tensors {
            let entry = &header[format!("{}.{field}", layer.name)];
            assert_eq!((&entry["dtype"], &entry["shape"]), (&"F32".into(), &serde_json::json!(shape)));
            let stored: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(entry["data_offsets"], serde_json::json!([end, end + stored.len()]));
            assert!(bytes[start + end..][..stored.len()] == stored, "{}.{field}", layer.name);
            end += stored.len();
        }
    }
    assert_eq!(bytes.len(), start + end);
    assert_eq!(header["__metadata__"]["trireme.network"], "lenet-caffe");
    let lines = [
        "        self.conv1 = nn.Conv2d(1, 20, 5)",
        "        self.fc1 = nn.Linear(800, 500)",
        "        x = F.max_pool2d(x, 2, 2)",
        "        x = torch.flatten(x, 1)",
        "        x = F.relu(self.fc1(x))",
        "def load(path=Path(__file__).with_name(\"net.safetensors\")):",
    ];
    assert_has_lines(&folder.at("net.py"), &lines);
}

#[track_caller]
fn assert_has_lines(file: &str, lines: &[&str]) {
    let text = fs::read_to_string(file).unwrap();
    for line in lines {
        assert!(text.lines().any(|own| own == *line), "no line {line} in\n{text}");
    }
}

#[test]
fn layers_that_pytorch_has_in_other_shapes_are_written_in_those() {
    let setting = SmallRun::new();
    let net = setting.folder.write("net.toml", NARROW);
    let model = format!("model={net}");
    setting.train(0, &["--max-steps", "1", "--set", &model]).succeeded();
    let folder = Folder::new();
    let out = folder.at("net.safetensors");
    run(0, &["export", &setting.out, "--to", "safetensors", "-o", &out]).succeeded();
    let (header, _) = weights::header(&fs::read(&out).unwrap());
    for (name, shape) in
        [("wide.weight", &[12, 4][..]), ("narrow.weight", &[4, 12, 1, 1]), ("scale.layer_scale", &[4, 1, 1])]
    {
        assert_eq!(header[name]["shape"], serde_json::json!(shape), "{name}");
    }
    let lines = [
        "        self.wide = nn.Linear(4, 12)",
        "        self.narrow = nn.Conv2d(12, 4, 1, bias=False)",
        "        x = F.relu(self.wide(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))",
    ];
    assert_has_lines(&folder.at("net.py"), &lines);
    // a run can start from the exported file
    let from = format!("init.from=\"{out}\"");
    let again = folder.at("again");
    let lists = ["train", "eval"].map(|list| format!("augment.{list}=[\"normalize(0.1, 0.3)\"]"));
    let sets = [&model, &from, &lists[0], &lists[1]].map(|set| ["--set", set]).concat();
    let taken = [&sets[..], &["--max-steps", "0", "--out", &again]].concat();
    run(0, &[&["train", &setting.recipe, "--data", &setting.data, "--threads", "1"][..], &taken].concat()).succeeded();
    assert!(weights::model(&again).layers == weights::model(&setting.out).layers);
    // it needs only the weights, not the texts that describe the model
    let (mut bytes, mean) = (fs::read(&out).unwrap(), b"\"trireme.mean\":\"[");
    let at = bytes.windows(mean.len()).position(|part| part == mean).unwrap();
    bytes[at + mean.len() - 1] = b'{';
    let damaged = folder.write("damaged.safetensors", bytes);
    let from = format!("init.from=\"{damaged}\"");
    let other = folder.at("other");
    let sets = [&model, &from, &lists[0], &lists[1]].map(|set| ["--set", set]).concat();
    let taken = [&sets[..], &["--max-steps", "0", "--out", &other]].concat();
    let started =
        run(0, &[&["train", &setting.recipe, "--data", &setting.data, "--threads", "1"][..], &taken].concat());
    started.succeeded().says(&["warning", &damaged, "trireme.mean"]);
    assert!(weights::model(&other).layers == weights::model(&setting.out).layers);
    run(0, &["import", &damaged, "-o", &folder.at("import.h5")]).failed(1, &[&damaged, "trireme.mean"]);
    // a layer with a larger kernel is not fully connected
    setting.folder.write("net.toml", NARROW.replace("kernel = 1, linear", "kernel = 3, linear"));
    setting.train(0, &["--set", &model]).failed(2, &["net.toml", "wide", "kernel 1"]);
}

/// A fully connected layer over channels, followed by a convolution with fewer channels.
const NARROW: &str = r#"
input = [1, 28, 28]
classes = 10
nodes = [
    { name = "patches", op = "conv", channels = 4, kernel = 4, stride = 4 },
    { name = "wide", op = "conv", channels = 12, kernel = 1, linear = true, bias = true, relu = true },
    { name = "narrow", op = "conv", channels = 4, kernel = 1 },
    { name = "scale", op = "layer_scale", start = 0.5 },
    { name = "flatten", op = "flatten" },
    { name = "fc", op = "linear", features = "classes" },
]
"#;

#[test]
fn a_file_that_is_there_stays() {
    let (setting, folder) = model(&[]);
    let (onnx, code) = (folder.write("a.onnx", "precious"), folder.write("a.py", "precious"));
    for (to, out, taken) in [("onnx", &onnx, &onnx), ("safetensors", &folder.at("a.safetensors"), &code)] {
        run(0, &["export", &setting.out, "--to", to, "-o", out]).failed(2, &[taken, "already exists", "--force"]);
        assert_eq!(fs::read(taken).unwrap(), b"precious");
    }
    assert_eq!(files(&folder.at("")), ["a.onnx", "a.py"]);
    let force = |to: &str, out: &str| run(0, &["export", &setting.out, "--to", to, "-o", out, "--force"]);
    force("onnx", &onnx).failed(2, &[&onnx, "not an ONNX file"]);
    force("safetensors", &folder.at("a.safetensors")).failed(2, &[&code, "not a Python file"]);
    assert_eq!((fs::read(&onnx).unwrap(), fs::read(&code).unwrap()), (b"precious".to_vec(), b"precious".to_vec()));
    let model = format!("{}/model.h5", setting.out);
    let before = fs::read(&model).unwrap();
    force("keras", &model).failed(2, &[&model, "input files"]);
    assert_eq!(fs::read(&model).unwrap(), before);
    // an older export of the same format is replaced
    let names = ["b.onnx", "b.safetensors", "b.keras", "b.h5"].map(|name| folder.at(name));
    for (to, out) in ["onnx", "safetensors", "keras", "keras"].into_iter().zip(&names) {
        force(to, out).succeeded();
        force(to, out).succeeded();
    }
}

#[test]
fn requests_without_sense_are_refused() {
    let (setting, folder) = model(&[]);
    let out = folder.at("a");
    let export = |to: &str, name: &str, more: &[&str]| {
        run(0, &[&["export", &setting.out, "--to", to, "-o", &(out.clone() + name)], more].concat())
    };
    export("tflite", ".tflite", &[]).failed(2, &["onnx, safetensors, keras"]);
    export("keras", ".bin", &[]).failed(2, &["a.bin", "FILE.keras or FILE.h5"]);
    export("keras", ".weights.h5", &[]).failed(2, &["a.weights.h5", "FILE.keras or FILE.h5"]);
    export("safetensors", ".py", &[]).failed(2, &["a.py", "FILE.safetensors"]);
    export("keras", ".keras", &["--preprocess"]).failed(2, &["--preprocess", "--to onnx"]);
    export("onnx", ".onnx", &["--ema"]).failed(2, &["--ema", "has no averages"]);
    export("onnx", "/b/c.onnx", &[]).failed(2, &["cannot write", "c.onnx", "No such file", "mkdir -p"]);
    assert_eq!(files(&folder.at("")).len(), 0);
}

#[test]
fn what_keras_lacks_is_refused_by_layer() {
    let (setting, folder) = model(&["--set", "model=cifarnet"]);
    for name in ["a.keras", "a.h5"] {
        let out = folder.at(name);
        run(0, &["export", &setting.out, "--to", "keras", "-o", &out])
            .failed(1, &["norm1 (lrn)", "Keras", "--to onnx"]);
    }
    assert_eq!(files(&folder.at("")).len(), 0);
    run(0, &["export", &setting.out, "--to", "onnx", "-o", &folder.at("a.onnx")]).succeeded();
}

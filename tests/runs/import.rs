//! `trireme import`: weights that other programs wrote become a model with the same predictions. Incomplete models are refused.

use std::fs;
use std::path::Path;

use formats::checkpoint::ModelFile;
use loaders::ImageSpec;

use support::images::{DIGITS, Images, record};
use support::in_repository;
use support::program::run;
use support::setting::Setting;
use support::small_run::SmallRun;
use support::weights::{Tensors, model, model_at, safetensors, tensors, tensors_of};

/// Trains a small model with its own numbers for `normalize` and returns its weights.
fn trained() -> (SmallRun, Tensors) {
    let setting = SmallRun::new();
    let lists = ["augment.train=[\"normalize(0.4, 0.3)\"]", "augment.eval=[\"normalize(0.4, 0.3)\"]"];
    setting.train(0, &["--set", lists[0], "--set", lists[1]]).succeeded();
    let weights = tensors(&setting.out);
    (setting, weights)
}

fn picture(setting: &SmallRun) -> String {
    let path = setting.folder.path().join("digit.png");
    image::GrayImage::from_raw(28, 28, record(2, 3, DIGITS).pixels).unwrap().save(&path).unwrap();
    path.display().to_string()
}

/// Checks that training with a tiny learning rate has not changed the weights by more than 1e-20. Only weights that are
/// exactly 0 can change at all.
#[track_caller]
fn assert_unmoved(after: &Tensors, before: &Tensors) {
    assert_eq!(after.len(), before.len());
    for (name, (shape, values)) in before {
        let (other, moved) = &after[name];
        assert_eq!(shape, other, "{name}");
        assert!(values.iter().zip(moved).all(|(a, b)| (a - b).abs() <= 1e-20), "{name}");
    }
}

#[test]
fn an_imported_model_is_the_one_that_was_trained() {
    let (setting, weights) = trained();
    let (foreign, out) = (setting.folder.at("net.safetensors"), setting.folder.at("net.h5"));
    safetensors(Path::new(&foreign), &weights, |name, _| Some(format!("net.{name}")));
    let names: String = (0..10).map(|class| format!("wave {class}\n")).collect();
    let classes = setting.folder.write("classes.txt", &names);
    let import = |more: &[&str]| {
        let args = ["import", &foreign, "--model", "lenet-caffe", "-o", &out, "--force", "--match", r"net\.(.*)", "$1"];
        run(0, &[&args, more].concat())
    };
    let normalize = ["--transform", "normalize(0.4,0.3)"];
    let ended = import(&[&normalize[..], &["--classes", &classes]].concat()).succeeded();
    assert_eq!(ended.stdout, format!("{out}\n"));
    assert!(ended.stderr.contains("taken: 8 tensors"), "{}", ended.stderr);
    assert_eq!(tensors_of(&out), weights);
    let (own, made) = (model(&setting.out), model_at(&out));
    assert_eq!((&made.classes, &made.preprocess, made.input), (&own.classes, &own.preprocess, own.input));
    assert_eq!((&made.mean, &made.std), (&vec![0.4], &vec![0.3]));
    let kinds =
        |model: &ModelFile| model.layers.iter().map(|layer| (layer.name.clone(), layer.kind)).collect::<Vec<_>>();
    assert_eq!(kinds(&own), kinds(&made));
    let picture = picture(&setting);
    let predicted = |model: &str| run(0, &["predict", model, &picture, "--json"]).succeeded().stdout;
    assert_eq!(predicted(&out), predicted(&setting.out));
    // a run may start from the imported model
    let from = format!("init.from={out}");
    let again = setting.folder.at("again");
    let still = ["--set", "schedule.base_lr=1e-30", "--set", &from, "--out", &again];
    let args = [&["train", setting.recipe.as_str(), "--data", &setting.data, "--threads", "1"], &still[..]].concat();
    run(0, &args).succeeded();
    assert_unmoved(&tensors(&again), &weights);
    // without class names, the numbers of the labels are used
    let ended = import(&normalize).succeeded();
    assert!(ended.stderr.contains("numbers are used"), "{}", ended.stderr);
    assert_eq!(model_at(&out).classes[9], "9");
    let missing = import(&[]);
    missing.failed(2, &["lenet-caffe", "--transform 'resize(32)'", "--recipe"]);
    import(&["--transform", "normalize"]).failed(2, &["\"normalize\"", "net.safetensors", "no data set"]);
}

/// The number of classes comes from the file, all other settings from a recipe.
#[test]
fn classes_and_rules_come_from_file_and_recipe() {
    let setting = SmallRun::of(|dir| {
        let mut images = Images::new(dir, DIGITS, 48, 10);
        images.manifest.classes.truncate(10);
        images.manifest.classes.push("ship".into());
        images.manifest.write(dir).unwrap();
        images
    });
    setting.train(0, &["--max-steps", "1"]).succeeded();
    let (foreign, out) = (setting.folder.at("net.safetensors"), setting.folder.at("net.h5"));
    safetensors(Path::new(&foreign), &tensors(&setting.out), |name, _| Some(format!("net.{name}")));
    let text = fs::read_to_string(&setting.recipe).unwrap().replace("[\"normalize\"]", "[\"normalize(0.4, 0.3)\"]");
    let recipe = setting.folder.write("import.toml", format!("{text}[init]\nmatch = [[\"net.(.*)\", \"$1\"]]\n"));
    let import = |more: &[&str]| run(0, &[&["import", &foreign, "--recipe", &recipe, "-o", &out], more].concat());
    // a recipe with `init.match` but without `init.from` is not valid for training, so import refuses it, too
    import(&[]).failed(2, &["init.match", "without init.from"]);
    let from = format!("{text}[init]\nfrom = \"weights\"\nmatch = [[\"net.(.*)\", \"$1\"]]\n");
    fs::write(&recipe, from).unwrap();
    import(&[]).succeeded();
    let model = model_at(&out);
    assert_eq!((model.classes.len(), model.network.as_str()), (11, "lenet-caffe"));
    assert_eq!(model.preprocess, ["normalize(0.4, 0.3)"]);
    import(&[]).failed(2, &["already exists", "--force"]);
    let ten = setting.folder.write("ten.txt", "name\n".repeat(10));
    import(&["--force", "--classes", &ten]).failed(2, &["net.safetensors", "11 classes", "10 class names"]);
    let empty = setting.folder.write("empty.txt", "a\n\nb\n");
    import(&["--force", "--classes", &empty]).failed(1, &["empty.txt", "line 2 ", "empty"]);
}

/// Import writes a model only if every tensor of the network gets values and every tensor of the file is used.
#[test]
fn incomplete_models_are_refused() {
    let (setting, weights) = trained();
    let (foreign, out) = (setting.folder.at("net.safetensors"), setting.folder.at("net.h5"));
    let import = |more: &[&str]| {
        let args = ["import", &foreign, "--model", "lenet-caffe", "--transform", "normalize(0.4,0.3)", "-o", &out];
        run(0, &[&args, more].concat())
    };
    let file =
        |change: &dyn Fn(&str, &mut Vec<f32>) -> Option<String>| safetensors(Path::new(&foreign), &weights, change);
    let refused = |code, more: &[&str], parts: &[&str]| {
        import(more).failed(code, parts);
        assert!(!Path::new(&out).exists());
    };
    file(&|name, _| (name != "conv2.bias").then(|| name.into()));
    refused(2, &[], &["missing: 1 ", "conv2.bias"]);
    refused(2, &["--exclude", "conv2.bias"], &["--exclude matches", "conv2.bias"]);
    file(&|name, _| Some(name.replace("conv2.bias", "conv2.biases")));
    refused(2, &[], &["missing: 1 ", "conv2.bias;", "left: 1 ", "conv2.biases"]);
    file(&|name, values| {
        values[0] = if name == "fc1.weight" { f32::INFINITY } else { values[0] };
        Some(name.into())
    });
    refused(1, &[], &["net.safetensors", "fc1.weight", "inf"]);
    file(&|name, _| Some(name.into()));
    refused(2, &["--exclude", "head.*"], &["\"head.*\" matches nothing"]);
    refused(2, &["--match", "net.(.*)", "$1"], &["\"net.(.*)\"", "matches no name"]);
    let other = ["import", &foreign, "--model", "lenet-cafe", "--transform", "normalize(0.4,0.3)", "-o", &out];
    run(0, &other).failed(2, &["lenet-cafe;", "did you mean \"lenet-caffe\""]);
    let evil = in_repository("tests/golden/weights/evil.pth");
    let evil = ["import", evil.to_str().unwrap(), "--model", "lenet", "--transform", "normalize(0,1)", "-o", &out];
    let ended = run(0, &evil).failed(1, &["posix.system", "executed"]);
    assert!(!ended.stdout.contains("executed") && !Path::new(&out).exists());
}

/// Weights that were exported to Keras can be imported, although Keras stores values in another order and under names
/// without dots. Tests a file with a whole model and the weights inside an archive.
#[test]
fn files_of_keras_come_back() {
    let (setting, weights) = trained();
    let (h5, archive, out) = (setting.folder.at("k.h5"), setting.folder.at("k.keras"), setting.folder.at("net.h5"));
    for file in [&h5, &archive] {
        run(0, &["export", &setting.out, "--to", "keras", "-o", file]).succeeded();
    }
    let import = |file: &str| {
        let args =
            ["import", file, "--model", "lenet-caffe", "--transform", "normalize(0.4,0.3)", "-o", &out, "--force"];
        run(0, &args)
    };
    import(&h5).succeeded();
    assert_eq!(tensors_of(&out), weights);
    // the archive itself cannot be read, but the weights in it can; their names consist of the kinds and numbers of the layers
    import(&archive).failed(1, &["k.keras", "data.pkl"]);
    let mut zip = zip::ZipArchive::new(fs::File::open(&archive).unwrap()).unwrap();
    let inner = setting.folder.at("k.weights.h5");
    std::io::copy(&mut zip.by_name("model.weights.h5").unwrap(), &mut fs::File::create(&inner).unwrap()).unwrap();
    let rules = [("conv2d", "conv1"), ("conv2d_1", "conv2"), ("dense", "fc1"), ("dense_1", "fc2")];
    let rules = rules.map(|(from, to)| [format!(r"{from}\.(.*)"), format!("{to}.$1")]);
    let rules: Vec<&str> = rules.iter().flat_map(|[from, to]| ["--match", from, to]).collect();
    let args = ["import", &inner, "--model", "lenet-caffe", "--transform", "normalize(0.4,0.3)", "-o", &out, "--force"];
    run(0, &[&args[..], &rules].concat()).succeeded();
    assert_eq!(tensors_of(&out), weights);
    // a run can also start from the Keras file
    let (from, again) = (format!("init.from={h5}"), setting.folder.at("again"));
    let lists = ["augment.train=[\"normalize(0.4, 0.3)\"]", "augment.eval=[\"normalize(0.4, 0.3)\"]"];
    let sets = [from.as_str(), "schedule.base_lr=1e-30", lists[0], lists[1]].map(|set| ["--set", set]).concat();
    let args = ["train", setting.recipe.as_str(), "--data", &setting.data, "--threads", "1", "--out", &again];
    let ended = run(2, &[&args[..], &sets].concat()).succeeded();
    assert!(ended.stderr.contains("k.h5 (Keras)"), "{}", ended.stderr);
    assert_eq!(tensors(&again), weights);
}

#[test]
fn weights_of_an_onnx_file_come_back() {
    let (setting, weights) = trained();
    let (onnx, out) = (setting.folder.at("net.onnx"), setting.folder.at("net.h5"));
    run(0, &["export", &setting.out, "--to", "onnx", "-o", &onnx]).succeeded();
    let import = |model: &str| {
        run(0, &["import", &onnx, "--model", model, "--transform", "normalize(0.4,0.3)", "-o", &out, "--force"])
    };
    import("resnet20").failed(2, &["net.onnx", "8 tensors", "network resnet20", "conv1.weight", "20x1x5x5"]);
    import("lenet-caffe").succeeded();
    assert_eq!(tensors_of(&out), weights);
    let bytes = fs::read(&onnx).unwrap();
    fs::write(&onnx, &bytes[..bytes.len() / 2]).unwrap();
    import("lenet-caffe").failed(1, &["net.onnx"]);
}

/// Without a network name, an ONNX file is imported with its own graph and has the same predictions as the exported model.
#[test]
fn a_graph_of_an_onnx_file_becomes_a_model() {
    let (setting, weights) = trained();
    let (onnx, out) = (setting.folder.at("net.onnx"), setting.folder.at("net.h5"));
    run(0, &["export", &setting.out, "--to", "onnx", "-o", &onnx]).succeeded();
    let import = |transforms: &[&str]| {
        let transforms: Vec<&str> = transforms.iter().flat_map(|transform| ["--transform", transform]).collect();
        run(0, &[&["import", &onnx, "-o", &out, "--force"], &transforms[..]].concat())
    };
    import(&["center_crop(20)", "normalize(0.4,0.3)"]).failed(2, &["20x20x1", "net.onnx", "1x28x28"]);
    // the file has the class names and the transforms of the exported model
    import(&[]).succeeded();
    let (own, made) = (model(&setting.out), model_at(&out));
    assert_eq!((&made.classes, &made.preprocess, made.image), (&own.classes, &own.preprocess, own.image));
    assert_eq!((&made.mean, &made.std), (&own.mean, &own.std));
    import(&["normalize(0.4,0.3)"]).succeeded();
    assert_eq!(tensors_of(&out), weights);
    assert!(!model_at(&out).definition.is_empty());
    // the content of a file says that it is a graph, not its name
    let unnamed = setting.folder.at("net.bin");
    fs::copy(&onnx, &unnamed).unwrap();
    run(0, &["import", &unnamed, "-o", &out, "--force", "--transform", "normalize(0.4,0.3)"]).succeeded();
    assert_eq!(tensors_of(&out), weights);
    let picture = picture(&setting);
    let shares = |model: &str| {
        let ended = run(0, &["predict", model, &picture, "--top", "10", "--json"]).succeeded();
        let line: serde_json::Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
        let classes = line["classes"].as_array().unwrap().clone();
        classes.iter().map(|class| class["probability"].as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (own, imported) = (shares(&setting.out), shares(&out));
    assert_eq!(own.len(), 10);
    assert!(own.iter().zip(&imported).all(|(a, b)| (a - b).abs() < 1e-6), "{own:?} {imported:?}");
}

/// The file was made for images with 32 x 32 pixels. Its patches have 4 x 4 pixels.
#[test]
fn position_embeddings_are_interpolated_for_larger_images() {
    let recipe = "model = \"vit_ti_4\"\nepochs = 1\nbatch = 4\nworkers = 1\nschedule.base_lr = 0.01\n";
    let setting = Setting::new(recipe, ImageSpec::new(32, 32, 3), [4, 4]);
    let out = setting.trained("out", 0, &["--max-steps", "0"]);
    let [file, copy] = ["vit.safetensors", "copy.h5"].map(|name| setting.folder.at(name));
    run(0, &["export", &out, "--to", "safetensors", "-o", &file]).succeeded();
    let transforms = ["--transform", "resize(48x48)", "--transform", "normalize(0.5, 0.25)"];
    let args = [&["import", &file, "--model", "vit_ti_4", "-o", &copy], &transforms[..]].concat();
    run(0, &args).succeeded().says(&["pos_embedding", "interpolated from 8 x 8 to 12 x 12"]);
    let made = model_at(&copy);
    assert_eq!(made.input, [3, 48, 48]);
    let (_, (_, values)) = tensors_of(&copy).into_iter().find(|(name, _)| name.ends_with("pos_embedding")).unwrap();
    assert_eq!(values.len(), 12 * 12 * 192);
}

/// Tests files of another architecture, and damaged HDF5 files.
#[test]
fn files_of_keras_that_do_not_fit_are_refused() {
    let (setting, _) = trained();
    let (h5, out) = (setting.folder.at("k.h5"), setting.folder.at("net.h5"));
    run(0, &["export", &setting.out, "--to", "keras", "-o", &h5]).succeeded();
    let refused = |file: &str, model: &str, code, parts: &[&str]| {
        let args = ["import", file, "--model", model, "--transform", "normalize(0.4,0.3)", "-o", &out];
        run(0, &args).failed(code, parts);
        assert!(!Path::new(&out).exists());
    };
    refused(&h5, "resnet20", 2, &["k.h5", "8 tensors", "network resnet20", "conv1.weight", "20x1x5x5"]);
    let bytes = fs::read(&h5).unwrap();
    let broken = setting.folder.at("broken.h5");
    fs::write(&broken, [&bytes[..8], &[0; 500]].concat()).unwrap();
    refused(&broken, "lenet-caffe", 1, &["broken.h5", "HDF5"]);
    fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    refused(&broken, "lenet-caffe", 1, &["broken.h5"]);
}

//! Runs that start from given weights: which tensors they use and which files they refuse. Also tests partly frozen
//! runs, on any number of ranks and with layers that are frozen for some epochs, and a first convolution that whitens.

use std::fs;
use std::path::Path;

use support::images::{DIGITS, THINGS};
use support::program::{events, sets};
use support::setting::Setting;
use support::small_run::SmallRun;
use support::weights::{model, safetensors, tensors};
use support::{in_repository, mentions};

const RECIPE: &str = r#"
model = "lenet-caffe"
epochs = 2
seed = 3
batch = 9
workers = 3
optimizer.kind = "adam"
augment.train = ["normalize(0.4, 0.3)"]
augment.eval = ["normalize(0.4, 0.3)"]
schedule.kind = "cosine"
schedule.base_lr = 0.002
reduce.codec = "exact"
"#;

/// With such a small rate, no weight changes, except weights that are exactly 0.
const STILL: &str = "schedule.base_lr=1e-30";

const WITHOUT_LAST_LAYER: &str = r#"init.exclude=["fc2.*"]"#;

#[test]
fn a_run_starts_from_a_model_or_from_a_file_of_another_program() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let source = setting.trained("source", 0, &[]);
    let want = tensors(&source);
    let foreign = setting.folder.path().join("lenet.safetensors");
    safetensors(&foreign, &want, |name, _| Some(format!("net.{name}")));
    let rule = r#"init.match=[["net\\.(.*)", "$1"]]"#;
    let from = format!("init.from={source}");
    let (checkpoint, foreign) =
        (format!("{from}/checkpoints/step-00000012.h5"), format!("init.from={}", foreign.display()));
    // three sources: a run's folder, its last checkpoint, and its weights in a .safetensors file
    let cases: [(&[&str], &str); 3] = [
        (&[&from], "model.h5 (trireme)"),
        (&[&checkpoint], "step-00000012.h5 (trireme)"),
        (&[&foreign, rule], "lenet.safetensors (safetensors)"),
    ];
    for (i, (keys, said)) in cases.into_iter().enumerate() {
        let keys = sets(&[keys, &[STILL, "ema.decay=0.9"]].concat());
        for ranks in [0, 2] {
            let name = format!("taken-{i}-{ranks}");
            let ended = setting.train(&name, ranks, &keys).succeeded();
            assert!(ended.stderr.contains(said) && ended.stderr.contains("taken: 8 tensors"), "{}", ended.stderr);
            assert_eq!(tensors(&setting.out(&name)), want, "{said} on {ranks} ranks");
            let model = model(&setting.out(&name));
            assert_eq!(model.ema, model.layers, "averages must start with the weights");
        }
    }
    // excluded tensors start as they would without a file
    let random = tensors(&setting.trained("random", 0, &sets(&[STILL])));
    let part = tensors(&setting.trained("part", 0, &sets(&[&from, WITHOUT_LAST_LAYER, STILL])));
    for (name, (_, values)) in &part {
        let want = if name.starts_with("fc2.") { &random[name].1 } else { &want[name].1 };
        // a bias that is exactly 0 changes a little even at this rate
        assert!(values.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-20), "{name}");
    }
    // with a normal rate, the result does not depend on the number of ranks or on a stop
    let from = ["--set", &from];
    setting.assert_ranks_change_nothing(&[2, 3], &from);
    setting.trained("stopped", 2, &[&from[..], &["--max-steps", "4"]].concat());
    // the file is not read again when the run resumes
    fs::remove_dir_all(&source).unwrap();
    setting.resumed("stopped", 3, &from);
    setting.assert_same_bits("stopped", "1");
}

/// In the model file, a bias is replaced by an array with other values, which is stored in chunks as other programs do.
#[test]
fn a_model_changed_by_another_program_is_reported() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let source = setting.trained("source", 0, &["--max-steps", "1"]);
    let file = hdf5_metno::File::open_rw(Path::new(&source).join("model.h5")).unwrap();
    let layer = file.group("model_weights/fc2/fc2").unwrap();
    let size = layer.dataset("bias:0").unwrap().size();
    layer.unlink("bias:0").unwrap();
    let bias = layer.new_dataset::<f32>().shape(size).chunk(size).create("bias:0").unwrap();
    bias.write_raw(&vec![0.5f32; size]).unwrap();
    drop((bias, layer));
    file.close().unwrap();
    let from = format!("init.from={source}");
    let ended = setting.train("taken", 0, &["--set", &from, "--max-steps", "1"]).succeeded();
    ended.says(&["warning: ", "another program", "model.h5", ": weights of fc2"]);
}

/// A run starts from a model of the same images with other class names. It reports the first difference and fails,
/// unless the last layer starts at random.
#[test]
fn different_classes_are_reported() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let source = setting.trained("source", 0, &["--max-steps", "1"]);
    let renamed = setting.described("renamed", |manifest| manifest.classes[3] = "ship".into());
    let more = setting.described("more", |manifest| manifest.classes.push("ship".into()));
    let from = format!("init.from={source}");
    for ranks in [0, 2] {
        let parts = ["init.from: ", "class 3 ", "\"wave 3\" in", "\"ship\" in", "init.exclude = [\"fc2.*\"]"];
        setting.train("refused", ranks, &["--set", &from, "--data", &renamed]).failed(2, &parts);
        assert!(!Path::new(&setting.out("refused")).exists());
    }
    let keys = sets(&[&from, WITHOUT_LAST_LAYER]);
    setting.trained("excluded", 0, &[&keys[..], &["--data", &renamed, "--max-steps", "1"]].concat());
    let ended = setting.train("replaced", 2, &["--set", &from, "--data", &more, "--max-steps", "1"]).succeeded();
    ended.says(&["last layer, fc2,", "random weights", "class 10 ", "\"ship\" in"]);
    ended.says(&["replaced: 2 tensors", "fc2.weight ([11, 500] "]);
}

/// A run prints a warning if it scales black and white differently from the imported model's training.
#[test]
fn different_normalization_is_reported() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let source = setting.trained("source", 0, &["--max-steps", "1"]);
    let foreign = setting.folder.path().join("lenet.safetensors");
    safetensors(&foreign, &tensors(&source), |name, _| Some(name.into()));
    let foreign = foreign.display().to_string();
    let told = |name: &str, from: &str, list: &str| {
        let [train, eval] = ["train", "eval"].map(|key| format!("augment.{key}={list}"));
        let from = format!("init.from={from}");
        let args = [&sets(&[&train, &eval, &from])[..], &["--max-steps", "1"]].concat();
        let stderr = setting.train(name, 0, &args).succeeded().stderr;
        stderr.lines().filter(|line| line.contains("warning: ")).map(String::from).collect::<Vec<_>>().join("\n")
    };
    let far = told("far", &source, "[]");
    let cure = ["\"normalize(0.4, 0.3)\"", "augment.train", "augment.eval"];
    mentions(&far, &[&cure[..], &["model.h5", "-1.33 to 2 ", "0 to 255 ", "useless"]].concat());
    let other = told("other", &source, "[\"normalize(0.5, 0.5)\"]");
    mentions(&other, &[&cure[..], &["model.h5", "-1.33 to 2 ", "-1 to 1 "]].concat());
    assert!(!other.contains("useless"), "{other}");
    assert_eq!(told("same", &source, "[\"normalize(0.4, 0.3)\"]"), "");
    let bytes = told("bytes", &foreign, "[]");
    mentions(&bytes, &["0 to 255 ", "lenet.safetensors", "torchvision"]);
    assert_eq!(told("told", &foreign, "[\"normalize(0.4, 0.3)\"]"), "");
}

/// Every error comes before the output folder is touched, without mpirun and on two ranks.
#[test]
fn weights_that_do_not_fit_are_refused_by_name() {
    let recipe = RECIPE.replace("batch = 9", "batch = 8").replace("workers = 3", "workers = 2");
    let run = SmallRun::from(Setting::new(&recipe, DIGITS, [48, 10]));
    run.train(0, &["--max-steps", "1"]).succeeded();
    let want = tensors(&run.out);
    let source = run.folder.at("source");
    fs::rename(&run.out, &source).unwrap();
    let file = |name: &str, change: &dyn Fn(&str, &mut Vec<f32>) -> Option<String>| {
        let path = run.folder.path().join(name);
        safetensors(&path, &want, change);
        format!("init.from={}", path.display())
    };
    let good = file("good.safetensors", &|name, _| Some(name.into()));
    let refused = |code, keys: &[&str], parts: &[&str]| run.refused(code, &sets(keys), parts);
    let nan = file("nan.safetensors", &|name, values| {
        values[1] = if name == "conv2.weight" { f32::NAN } else { values[1] };
        Some(name.into())
    });
    refused(1, &[&nan], &["nan.safetensors", "conv2.weight", "NaN", "init.exclude"]);
    let short = file("short.safetensors", &|name, _| (name != "conv2.bias").then(|| name.into()));
    refused(2, &[&short], &["short.safetensors", "missing: 1 ", "conv2.bias", "init.strict = false"]);
    let more = file("more.safetensors", &|name, _| Some(name.replace("conv2.bias", "conv2.biases")));
    refused(2, &[&more], &["more.safetensors", "missing: 1 ", "conv2.bias;", "left: 1 ", "conv2.biases"]);
    let other = file("other.safetensors", &|name, _| Some(name.replace('.', "_")));
    refused(2, &[&other], &["other.safetensors", "8 tensors", "network lenet-caffe", "conv1_bias"]);
    let prefixed = file("prefixed.safetensors", &|name, _| Some(format!("module.{name}")));
    refused(2, &[&prefixed], &["8 tensors", r#"init.match = [["module\\.(.*)", "$1"]]"#]);
    refused(2, &[&good, "init.exclude=[\"fc3.*\"]"], &["init.exclude: \"fc3.*\"", "matches nothing", "did you mean"]);
    refused(
        2,
        &[&good, "init.match=[[\"backbone.(.*)\", \"$1\"]]"],
        &["init.match: \"backbone.(.*)\"", "matches no name"],
    );
    refused(2, &[&good, "init.match=[[\"(\", \"$1\"]]"], &["init.match", "regular expression"]);
    refused(2, &["init.strict=false"], &["init.strict", "without init.from"]);
    refused(2, &["init.key=state_dict"], &["init.key", "without init.from"]);
    refused(
        2,
        &[&good, "augment.train=[\"normalize\"]"],
        &["augment.train: \"normalize\"", "this data set", "good.safetensors", "\"normalize(0.485, "],
    );
    let golden = in_repository("tests/golden/weights");
    let evil = format!("init.from={}", golden.join("evil.pth").display());
    refused(1, &[&evil], &["posix.system", "executed"]);
    let cut = run.folder.path().join("cut.safetensors");
    let bytes = fs::read(run.folder.path().join("good.safetensors")).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 5]).unwrap();
    refused(1, &[&format!("init.from={}", cut.display())], &["cut.safetensors", "damaged"]);
    let sum = std::process::Command::new("sha256sum").arg(run.folder.path().join("good.safetensors")).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap()[..64].to_string();
    let (right, wrong) = (format!("init.sha256={sum}"), format!("init.sha256={}", "0a".repeat(32)));
    refused(
        2,
        &[&good, &wrong],
        &["good.safetensors", &format!("expected SHA-256 {}", "0a".repeat(32)), &format!("found {sum}")],
    );
    refused(2, &[&format!("init.from={source}"), &right], &["init.sha256", "is a directory", "model.h5"]);
    refused(2, &[&good, "init.sha256=0676ba61"], &["init.sha256", "64 hexadecimal digits", "0676ba61"]);
    refused(2, &["init.from=/nowhere.pth"], &["init.from: ", "/nowhere.pth", "No such file"]);
    refused(2, &["freeze.patterns=[\"*\"]"], &["freeze.patterns = [\"*\"]", "all 8 parameters", "lenet-caffe"]);
    refused(
        2,
        &["freeze.patterns=[\"conv3.*\"]"],
        &["freeze.patterns: \"conv3.*\"", "matches nothing", "lenet-caffe", "did you mean"],
    );
    refused(2, &["freeze.epochs=1"], &["freeze.epochs", "without freeze.patterns"]);
    refused(2, &["freeze.after=1"], &["freeze.after", "without freeze.patterns"]);
    let both = ["freeze.patterns=[\"fc2.*\"]", "freeze.epochs=1", "freeze.after=1"];
    refused(2, &both, &["freeze.after", "cannot be combined with freeze.epochs"]);
    let parts = ["freeze.patterns", "sync = \"local(2)\"", "sync = \"allreduce\""];
    refused(2, &["freeze.patterns=[\"conv1.*\"]", "sync=local(2)"], &parts);
    let parts = ["optimizer.groups.match: \"fcc*\"", "matches nothing"];
    refused(2, &["optimizer.groups=[{match=[\"fcc*\"], lr=2}]"], &parts);
    let parts = ["table 1: ", "unknown key \"rate\"", "\"match\", \"lr\"", "\"weight_decay\""];
    refused(2, &["optimizer.groups=[{match=[\"fc*\"], rate=2}]"], &parts);
    refused(2, &["optimizer.groups=[{lr=2}]"], &["table 1: match: this required key is missing"]);
    // without init.strict, missing tensors are allowed and reported
    run.train(2, &["--set", &good, "--set", &right, "--max-steps", "0"]).succeeded();
    fs::remove_dir_all(&run.out).unwrap();
    let more = ["--set", &short, "--set", "init.strict=false", "--max-steps", "1"];
    let ended = run.train(2, &more).succeeded();
    ended.says(&["missing: 1 ", "conv2.bias"]);
}

#[test]
fn a_dry_run_shows_every_tensor_and_what_is_frozen() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let source = setting.trained("source", 0, &["--max-steps", "1"]);
    let from = format!("init.from={source}");
    let keys = sets(&[
        &from,
        WITHOUT_LAST_LAYER,
        r#"freeze.patterns=["conv*"]"#,
        "freeze.epochs=1",
        r#"optimizer.groups=[{match=["fc2.*"], lr=10}]"#,
    ]);
    let keys = [&keys[..], &["--dry-run"]].concat();
    for ranks in [0, 2] {
        let text = setting.train("dry", ranks, &keys).succeeded().stdout;
        for part in
            ["conv1.weight", " taken ", "excluded", "4 of 8 tensors", "25570 of 431080 parameters", "first 1 epoch"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("[[optimizer.groups]]\nmatch = [\"fc2.*\"]\nlr = 10\n"), "{text}");
        let frozen: Vec<&str> =
            text.lines().filter(|line| line.ends_with("  frozen")).filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(frozen, ["conv1", "conv2"]);
    }
    assert!(!Path::new(&setting.out("dry")).exists());
}

/// Trains ResNet-20 with frozen first stages and a frozen norm in the last stage, with weight averages and Adam.
fn frozen() -> Setting {
    let recipe = RECIPE.replace("lenet-caffe", "resnet20").replace("train = [\"", "train = [\"flip\", \"");
    let freeze = "[freeze]\npatterns = [\"conv1.*\", \"bn1.*\", \"layer1.*\", \"layer2.*\", \"layer3.1.bn1.*\"]\n";
    Setting::new(&format!("{recipe}{freeze}[ema]\ndecay = 0.9\n"), THINGS, [50, 20])
}

#[test]
fn frozen_parameters_keep_their_bits_on_any_number_of_ranks() {
    let setting = frozen();
    let start = tensors(&setting.trained("start", 0, &["--max-steps", "1", "--set", "schedule.base_lr=1e-30"]));
    for ranks in [1, 2, 3] {
        let out = setting.trained(&format!("ranks-{ranks}"), ranks, &[]);
        assert_eq!(setting.digest(&format!("ranks-{ranks}")), setting.digest("ranks-1"), "{ranks} ranks");
        for (name, values) in &tensors(&out) {
            let held =
                ["conv1.", "bn1.", "layer1.", "layer2.", "layer3.1.bn1."].iter().any(|start| name.starts_with(start));
            let (moved, running) = (values != &start[name], name.contains("running"));
            // the weights in `start` are those before training, but its statistics have seen one step
            assert!(moved != held || (running && !held), "{name}: {moved}");
        }
    }
    let facts = events(&setting.out("ranks-2"), "start");
    assert!(facts[0].to_string().contains("whole run"), "{}", facts[0]);
}

#[test]
fn frozen_parameters_are_not_exchanged() {
    let bytes = |freeze: &[&str]| {
        let recipe = RECIPE.replace("reduce.codec = \"exact\"\n", "");
        let setting = Setting::new(&recipe, DIGITS, [120, 20]);
        let out = setting.trained("out", 2, freeze);
        events(&out, "exchange")[0]["bytes"].as_u64().unwrap()
    };
    // fc2 has 5000 + 10 parameters and is stored in channel blocks
    let (all, part) = (bytes(&[]), bytes(&["--set", "freeze.patterns=[\"conv*\", \"fc1.*\"]"]));
    assert!(all >= 4 * 431_080 && (4 * 5010..4 * 8500).contains(&part), "bytes {all} without freezing, {part} with it");
}

/// With `freeze.epochs`, the first epoch trains with frozen layers. With `freeze.after`, the second epoch does. The
/// result is bit-identical on any number of ranks and after stops before and after the change.
#[test]
fn a_stop_next_to_frozen_epochs_changes_no_bit() {
    let adam = "optimizer.kind = \"adam\"";
    let momentum = "optimizer.kind = \"sgd\"\noptimizer.momentum = 0.9\noptimizer.clip_norm = 0.5";
    for (optimizer, key) in [(adam, "epochs"), (momentum, "epochs"), (adam, "after")] {
        println!("{optimizer} {key}");
        let setting = frozen();
        let recipe = fs::read_to_string(&setting.recipe).unwrap();
        let recipe = recipe.replace(adam, optimizer);
        fs::write(&setting.recipe, recipe.replace("[freeze]\n", &format!("[freeze]\n{key} = 1\n"))).unwrap();
        let whole = setting.trained("whole", 1, &[]);
        let early = tensors(&setting.trained("early", 3, &["--max-steps", "6"]));
        let late = tensors(&whole);
        let first = tensors(&setting.trained("first", 0, &["--max-steps", "1"]));
        let [first, early, late] = [first, early, late].map(|tensors| tensors["layer1.0.conv1.weight"].clone());
        assert_eq!(first != early, key == "after", "{optimizer} {key}");
        assert_eq!(early != late, key == "epochs", "{optimizer} {key}");
        setting.assert_stops_change_nothing("whole", &[(2, "4"), (1, "6"), (3, "9")], 2, &[]);
    }
}

const WHITENED: &str = r#"
model = "airbench94"
epochs = 2
batch = 12
workers = 3
init.whiten = "whiten"
freeze.patterns = ["whiten.weight"]
optimizer.momentum = 0.85
schedule.base_lr = 0.01
augment.train = ["flip", "normalize(0.5, 0.25)"]
augment.eval = ["normalize(0.5, 0.25)"]
reduce.codec = "exact"
"#;

#[test]
fn whitening_filters_are_equal_on_any_number_of_ranks() {
    let setting = Setting::new(WHITENED, THINGS, [30, 10]);
    let begun = tensors(&setting.trained("begun", 0, &["--max-steps", "0", "--set", "ema.decay=0.9"]));
    let filters = &begun["whiten.weight"].1;
    let (half, negative) = filters.split_at(filters.len() / 2);
    assert!(half.iter().zip(negative).all(|(a, b)| *a == -b), "each filter must have its negative");
    let norms: Vec<f32> = half.chunks(12).map(|filter| filter.iter().map(|x| x * x).sum::<f32>().sqrt()).collect();
    assert!(norms.is_sorted() && norms[0] > 0.0, "filters with smaller eigenvalues must be larger: {norms:?}");

    let trained = tensors(&setting.assert_ranks_change_nothing(&[2, 3], &[]));
    assert_eq!(&trained["whiten.weight"].1, filters, "a frozen weight must not change");
    assert_ne!(trained["whiten.bias"].1, begun["whiten.bias"].1, "the bias must be trained");
    setting.assert_stops_change_nothing("1", &[(2, "3")], 3, &[]);
}

#[test]
fn layers_unfit_for_whitening_are_refused() {
    let setting = Setting::new(WHITENED, THINGS, [30, 10]);
    let refused = |layer: &str, model: &str, words: &[&str]| {
        let (layer, model) = (format!("init.whiten={layer}"), format!("model={model}"));
        let sets = ["--set", &layer, "--set", &model, "--unset", "freeze.patterns", "--dry-run"];
        setting.train("refused", 1, &sets).failed(2, words);
    };
    refused("witen", "airbench94", &["init.whiten = \"witen\"", "no such layer", "\"whiten\""]);
    // all ranks find the same problem, and only rank 0 reports it
    let twice = ["--set", "init.whiten=witen", "--unset", "freeze.patterns", "--dry-run"];
    let ended = setting.train("refused", 2, &twice).failed(2, &["init.whiten = \"witen\"", "no such layer"]);
    assert!(
        !ended.stderr.lines().any(|line| line.contains("init.whiten") && line.contains("rank ")),
        "{}",
        ended.stderr
    );
    refused("group1.conv1", "airbench94", &["init.whiten = \"group1.conv1\"", "the images"]);
    refused("pool", "airbench94", &["init.whiten = \"pool\"", "not a convolution"]);
    refused("conv1", "resnet18", &["init.whiten = \"conv1\"", "147 values", "at most 64"]);
    refused("features.0", "vgg11", &["at most 54 ", "got 64"]);
}

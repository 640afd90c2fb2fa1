//! The recipes that come with trireme. Each is valid, can be written and read again, and names the source of its score.
//! Also checks the numbers and names in the documents.

use comm::codec;
use engine::optim::schedule::Schedule;
use loaders::transform::HEAD_WORDS;
use loaders::{ImageSpec, Manifest, Pipeline};
use net::models;
use recipe::{Changes, Recipe, keys};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use support::in_repository;

fn parse(text: &str, name: &str) -> Recipe {
    Recipe::parse(text, name, &Changes::default()).unwrap_or_else(|e| panic!("{e}")).recipe
}

fn texts() -> BTreeMap<String, String> {
    let dir = in_repository("recipes");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_string();
    files
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .map(|path| (name(&path), fs::read_to_string(&path).unwrap()))
        .collect()
}

fn recipes() -> BTreeMap<String, Recipe> {
    texts().into_iter().map(|(name, text)| (name.clone(), parse(&text, &name))).collect()
}

#[test]
fn every_recipe_is_valid_and_survives_writing() {
    for (name, mut recipe) in recipes() {
        recipe.resolve(2).unwrap();
        let written = recipe.to_toml().unwrap();
        assert_eq!(parse(&written, &name), recipe);
    }
}

#[test]
fn the_promised_recipes_are_there() {
    let names: Vec<String> = texts().into_keys().collect();
    let small = ["cifar10-cifarnet", "cifar10-resnet20", "fashion-mnist-lenet", "mnist-lenet"];
    let large =
        ["imagenet-alexnet", "imagenet-resnet18", "imagenet-resnet50", "folder-resnet18", "photos-efficientnet-lite0"];
    let deep =
        ["imagenet-vgg16", "imagenet-googlenet", "imagenet-inception-v3", "imagenet-mobilenet-v2", "cifar10-wrn28-10"];
    let transformers = ["imagenet-vit-s16", "cifar10-vit-tiny"];
    for name in small.into_iter().chain(large).chain(deep).chain(transformers) {
        assert!(names.iter().any(|have| have == name), "{name} is missing from {names:?}");
    }
}

#[test]
fn every_recipe_names_the_score_to_expect_and_how_to_run_it() {
    for (name, text) in texts() {
        let head: String = text.lines().take_while(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert!(head.contains('%') && head.contains("Published") || head.contains("To reach"), "{name}: no score");
        assert!(head.contains("trireme data convert ") && head.contains(&format!("recipes/{name}.toml")), "{name}");
        assert!(!head.contains("runs/demo"), "{name}: runs/demo belongs to `make demo`, and `make clean` removes it");
    }
}

#[test]
fn every_key_of_a_recipe_is_documented() {
    for (name, text) in texts() {
        for (key, value) in text.parse::<toml::Table>().unwrap() {
            let paths = match value {
                toml::Value::Table(inner) => inner.keys().map(|inner| format!("{key}.{inner}")).collect(),
                _ => vec![key],
            };
            for path in paths {
                let found = keys::find(&path).unwrap_or_else(|| panic!("{name}: {path} is not in the table of keys"));
                assert!(!found.field.doc.is_empty());
            }
        }
    }
}

/// A recipe's name, the steps per epoch, and the learning rates of some steps.
type Rates = (&'static str, u64, &'static [(u64, f64)]);

/// The expected rates were calculated by hand from the published settings.
#[test]
fn the_rates_are_the_published_ones() {
    let recipes = recipes();
    let cases: [Rates; 14] = [
        ("mnist-lenet", 938, &[(0, 0.01), (10_318 * 3 / 4, 0.005), (10_318, 0.0)]),
        ("fashion-mnist-lenet", 938, &[(0, 0.03), (1407, 0.015), (2814, 0.0)]),
        ("cifar10-cifarnet", 391, &[(0, 0.1), (100_095, 0.1)]),
        ("cifar10-resnet20", 391, &[(0, 0.1), (32_061, 0.1), (32_062, 0.01), (48_093, 0.001), (64_123, 0.001)]),
        ("imagenet-resnet50", 5005, &[(0, 0.1), (150_150, 0.01), (300_300, 0.001), (400_400, 0.0001)]),
        ("imagenet-resnet18", 5005, &[(0, 0.1), (150_149, 0.1), (150_150, 0.01), (300_300, 0.001)]),
        ("imagenet-alexnet", 5005, &[(0, 0.01), (150_150, 0.001), (450_449, 0.0001)]),
        ("imagenet-vgg16", 5005, &[(0, 0.01), (150_150, 0.001), (450_449, 0.0001)]),
        ("imagenet-googlenet", 40_037, &[(0, 0.01), (40_037 * 45, 0.005), (40_037 * 60, 0.0)]),
        ("imagenet-inception-v3", 801, &[(0, 0.045), (1601, 0.045), (1602, 0.0423), (3204, 0.039_762)]),
        ("imagenet-mobilenet-v2", 5005, &[(0, 0.045), (5005, 0.0441), (10_010, 0.043_218)]),
        ("imagenet-vit-s16", 1252, &[(0, 0.0), (5000, 5e-4), (10_000, 1e-3), (61_340, 5e-4), (112_679, 0.0)]),
        ("cifar10-vit-tiny", 196, &[(0, 0.0), (980, 5e-4), (1960, 1e-3), (20_580, 5e-4), (39_199, 0.0)]),
        ("cifar10-wrn28-10", 391, &[(0, 0.1), (23_460, 0.02), (46_920, 0.004), (62_560, 0.0008)]),
    ];
    for (name, steps_per_epoch, rows) in cases {
        let recipe = &recipes[name];
        let schedule =
            Schedule::over(&recipe.schedule, recipe.batch, recipe.total_steps(steps_per_epoch), steps_per_epoch)
                .unwrap();
        for &(step, want) in rows {
            let got = schedule.lr(step);
            assert!((got - want).abs() < 1e-6, "{name}, step {step}: expected {want}, got {got}");
        }
    }
}

/// The transforms of training and evaluation must produce the shape that the network takes.
#[test]
fn the_transforms_end_in_the_shape_of_the_network() {
    for (name, recipe) in recipes() {
        let input = match recipe.data.as_str() {
            "data/cifar10" => ImageSpec::new(32, 32, 3),
            "data/imagenet" | "data/photos" | "data/photos-256" => ImageSpec::new(375, 500, 3),
            _ => ImageSpec::new(28, 28, 1),
        };
        let channels = input.channels as usize;
        let manifest = Manifest {
            version: 1,
            classes: (0..10).map(|class| class.to_string()).collect(),
            mean: vec![0.5; channels],
            std: vec![0.25; channels],
            ..Manifest::default()
        };
        let mut wanted = models::input(&recipe.model).unwrap();
        if recipe.data == "data/photos" {
            (wanted.h, wanted.w) = (112, 112);
        }
        for ops in [&recipe.augment.train, &recipe.augment.eval] {
            let output =
                Pipeline::new(ops, input, &manifest, recipe.seed).unwrap_or_else(|e| panic!("{name}: {e}")).output();
            let got = [output.channels, output.height, output.width].map(|n| n as usize);
            assert_eq!(got, [wanted.c, wanted.h, wanted.w], "{name}: {ops:?}");
        }
    }
}

#[test]
fn cifarnet_decays_the_two_hidden_layers_alone() {
    let optimizer = &recipes()["cifar10-cifarnet"].optimizer;
    let layers = ["conv1", "conv2", "fc1", "fc2", "fc3"];
    let names = layers.iter().flat_map(|layer| ["weight", "bias"].map(|kind| format!("{layer}.{kind}")));
    let decayed: Vec<String> = names.filter(|name| optimizer.decay_of(name, &[1]) > 0.0).collect();
    assert_eq!(decayed, ["fc1.weight", "fc2.weight"]);
}

/// Checks the settings of Goyal et al.: batch-norm parameters do not decay, all others do. The rate grows with the
/// batch and warms up from the base rate.
#[test]
fn resnet50_is_set_up_for_large_batches() {
    let recipe = &recipes()["imagenet-resnet50"];
    let net = models::build(&recipe.model, models::input(&recipe.model).unwrap(), 1000).unwrap();
    for node in &net.nodes {
        let spared = recipe.optimizer.decay_of(&format!("{}.weight", node.name), &[1]) == 0.0;
        assert_eq!(spared, node.op.kind() == "norm", "{}", node.name);
    }
    assert!(recipe.zero_init_residual);
    let schedule = Schedule::over(&recipe.schedule, 8192, recipe.total_steps(157), 157).unwrap();
    assert!((schedule.lr(0) - 0.1).abs() < 1e-6 && (schedule.lr(5 * 157) - 3.2).abs() < 1e-6);
}

fn page(path: &str) -> String {
    let path = in_repository(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Each network, codec, transform and kind of data set has a row in a documentation page.
#[test]
fn the_pages_have_a_row_for_each_name() {
    let kinds = data_tools::KINDS.iter().map(|kind| kind.0).collect();
    let lists = [
        ("docs/models.md", models::names()),
        ("docs/numbers.md", codec::NAMES.to_vec()),
        ("docs/transforms.md", loaders::transform::names()),
        ("docs/data.md", kinds),
    ];
    for (path, names) in lists {
        let page = page(path);
        for name in names {
            assert!(page.lines().any(|line| line.starts_with(&format!("| `{name}"))), "{name} has no row in {path}");
        }
    }
}

#[test]
fn the_pages_name_files_that_exist() {
    let folders = "src/ crates/ loaders/ data-tools/ tests/ recipes/ docs/ build/ jobscripts/ packaging/";
    let folders: Vec<&str> = folders.split(' ').collect();
    let docs = fs::read_dir(in_repository("docs")).unwrap();
    let docs = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_string_lossy()));
    let pages =
        ["README.md", "CHANGELOG.md"].map(String::from).into_iter().chain(docs.filter(|name| name.ends_with(".md")));
    let mut seen = 0;
    for name in pages {
        let page = page(&name);
        let words = page.split(|c: char| c.is_whitespace() || "`()|,;:".contains(c));
        let paths = words.filter(|word| folders.iter().any(|folder| word.starts_with(folder)));
        for path in paths.filter(|path| !path.contains("NAME")) {
            let path = path.trim_end_matches('.').split('#').next().unwrap_or(path);
            assert!(in_repository(path).exists(), "{name} names {path}, which does not exist");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} paths");
}

fn recorded(path: &str, list: &str) -> usize {
    let file: Value = serde_json::from_str(&page(path)).unwrap();
    file[list].as_array().unwrap().len()
}

#[test]
fn numbers_in_the_documents_are_right() {
    let names = loaders::transform::names();
    let transforms = names.iter().filter(|name| !HEAD_WORDS.contains(name)).count();
    let cases = recorded("tests/golden/ops.json", "cases");
    let runs = recorded("tests/golden/optim.json", "runs");
    let recipes = texts().len();
    for (path, said) in [
        ("README.md", format!("| networks | [{}](docs/models.md)", models::names().len())),
        ("README.md", format!("| transforms | {transforms}, ")),
        ("README.md", format!("`recipes/` has {recipes} recipes.")),
        ("docs/testing.md", format!("`tests/numerics/ops.rs`: {cases} recorded cases")),
        ("docs/testing.md", format!("ten steps of {runs} settings")),
    ] {
        assert!(page(path).contains(&said), "{path} should say \"{said}\"");
    }
}

#[test]
fn the_readme_is_short() {
    let lines = page("README.md").lines().count();
    assert!(lines <= 110, "README.md has {lines} lines, expected at most 110");
}

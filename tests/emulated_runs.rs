//! Whole runs on the emulated GPU, which ranks share: the laws about ranks, resuming, the ways of gradients, and what is said of
//! devices that are not there.

#[path = "support/emulator.rs"]
mod emulator;
#[path = "support/images.rs"]
mod images;
#[path = "support/program.rs"]
mod program;

use std::time::Duration;

use images::Images;
use loaders::ImageSpec;
use program::{Ended, Folder, events, start, trireme};

/// The emulated card takes its time, and compiles its kernels at the first start.
const PATIENCE: Duration = Duration::from_secs(400);

/// Tests of this file.
const TESTS: usize = 4;

const RECIPE: &str = r#"
model = "resnet20"
data = "given with --data"
epochs = 1
seed = 7
batch = 8
workers = 4

[optimizer]
kind = "sgd"
momentum = 0.9
nesterov = true
weight_decay = 1e-4

[schedule]
kind = "constant"
base_lr = 0.01

[augment]
train = ["pad_crop(1)", "flip", "normalize"]
eval = ["normalize"]

[reduce]
codec = "exact"
bucket_mb = 0.2

[checkpoint]
every = "2 steps"
"#;

struct Setting {
    folder: Folder,
    recipe: String,
    data: String,
}

impl Setting {
    /// 26 images: the last batch of an epoch has 2, so that two of four workers have none.
    fn new() -> Self {
        let folder = Folder::new();
        let data = Images::new(&folder.path().join("data"), ImageSpec::new(8, 8, 3), 26, 8).arg();
        let recipe = folder.write("recipe.toml", RECIPE);
        Self { folder, recipe, data }
    }

    /// Trains into OUT of this name, on ranks that share the card.
    fn start(&self, out: &str, ranks: usize, more: &[&str], variables: &[(&str, &str)]) -> Ended {
        let out = self.folder.at(out);
        let args = ["train", &self.recipe, "--data", &self.data, "--out", &out, "--device", "cuda"];
        let mut program = trireme(ranks, &[&args, more].concat());
        let (name, path) = emulator::library_path();
        program.env(name, path).envs(variables.iter().copied());
        start(program).wait(PATIENCE)
    }

    /// The digest of all that such a training has made.
    #[track_caller]
    fn digest(&self, out: &str, ranks: usize, more: &[&str]) -> String {
        self.start(out, ranks, &[&["--share-gpu"], more].concat(), &[]).succeeded();
        self.made(out)
    }

    #[track_caller]
    fn made(&self, out: &str) -> String {
        let ends = events(&self.folder.at(out), "end");
        ends.last().expect("an end")["digest"].as_str().expect("a digest").to_string()
    }
}

#[test]
fn ranks_and_stops_change_nothing_on_a_card() {
    if !emulator::available(TESTS) {
        return;
    }
    let setting = Setting::new();
    let one = setting.digest("one", 1, &[]);
    for (out, ranks, more) in [
        ("two", 2, &[][..]),
        ("four", 4, &[]),
        ("kept", 2, &["--set", "loader.cache=device"]),
        ("staged", 2, &["--set", "reduce.path=staged", "--set", "reduce.overlap=false"]),
    ] {
        assert_eq!(setting.digest(out, ranks, more), one, "{out}");
    }
    setting.digest("parts", 2, &["--max-steps", "2"]);
    assert_eq!(setting.digest("parts", 1, &["--resume", "auto"]), one, "resumed");
}

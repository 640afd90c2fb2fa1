//! A small run, all of it good, for tests that each spoil something: a recipe, a data set, an output folder.

use std::fs;
use std::path::Path;

use super::images::{DIGITS, Images};
use super::program::{Ended, Folder, Running, events, files, run, start, trireme};

/// Two epochs of six steps.
pub const RECIPE: &str = r#"
model = "lenet-caffe"
data = "given with --data"
epochs = 2
batch = 8
workers = 2

[optimizer]
kind = "sgd"

[schedule]
kind = "constant"
base_lr = 0.01

[augment]
train = ["normalize"]
eval = ["normalize"]
"#;

/// A folder with a recipe and a data set, all of it good; each test spoils something.
pub struct SmallRun {
    pub folder: Folder,
    pub recipe: String,
    pub data: String,
    pub out: String,
}

impl SmallRun {
    /// 48 digits to train on.
    pub fn new() -> (Self, Images) {
        Self::of(|dir| Images::new(dir, DIGITS, 48, 10))
    }

    /// Other images.
    pub fn of(images: impl Fn(&Path) -> Images) -> (Self, Images) {
        let folder = Folder::new();
        let images = images(&folder.path().join("data"));
        let recipe = folder.write("recipe.toml", RECIPE);
        let out = folder.at("out");
        (Self { folder, recipe, data: images.arg(), out }, images)
    }

    /// `trireme train` with it, with all facts on stderr.
    pub fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let args = ["train", "-v", &self.recipe, "--data", &self.data, "--out", &self.out, "--threads", "1"];
        [&args, more].concat()
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn train(&self, ranks: usize, more: &[&str]) -> Ended {
        run(ranks, &self.args(more))
    }

    /// Fails with `code` and one line of these parts, on one rank and on two, before OUT is touched.
    #[track_caller]
    pub fn refused(&self, code: i32, more: &[&str], parts: &[&str]) {
        for ranks in [0, 2] {
            self.train(ranks, more).failed(code, parts);
            assert!(!Path::new(&self.out).exists(), "{:?} on {ranks} ranks", files(&self.out));
        }
    }

    /// The run failed after its start: no model, nothing half-written, a log of whole lines.
    #[track_caller]
    pub fn assert_no_model(&self) {
        let files = files(&self.out);
        assert!(!files.iter().any(|file| file == "model.h5" || file.contains("tmp")), "{files:?}");
        assert!(events(&self.out, "end").is_empty());
    }

    /// Starts a training of a thousand epochs and waits for its first steps.
    #[track_caller]
    pub fn endless(&self, ranks: usize) -> Running {
        let mut running = start(trireme(ranks, &self.args(&["--set", "epochs=1000"])));
        running.until("step", || events_so_far(&self.out) >= 3);
        running
    }
}

/// Whole lines of metrics.jsonl by now.
pub fn events_so_far(out: &str) -> usize {
    let text = fs::read_to_string(Path::new(out).join("metrics.jsonl")).unwrap_or_default();
    text.matches('\n').count()
}

/// Writes a byte into a file, in place.
pub fn poke(path: &Path, offset: u64, change: impl Fn(u8) -> u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset as usize] = change(bytes[offset as usize]);
    fs::write(path, bytes).unwrap();
}

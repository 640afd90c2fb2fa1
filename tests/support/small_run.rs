//! A small valid run: a recipe, a data set and an output folder. Most tests make one thing in it invalid.

use std::fs;
use std::path::Path;

use super::images::{DIGITS, Images};
use super::program::{Folder, ProgramOutput, Running, events, files, run, sets, start, trireme};

/// A recipe with two epochs of six steps.
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

pub struct SmallRun {
    pub folder: Folder,
    pub recipe: String,
    pub data: String,
    pub out: String,
}

impl SmallRun {
    /// Creates a data set with 48 training digits.
    pub fn new() -> (Self, Images) {
        Self::of(|dir| Images::new(dir, DIGITS, 48, 10))
    }

    /// Creates a run with the images that `images` writes to the given folder.
    pub fn of(images: impl Fn(&Path) -> Images) -> (Self, Images) {
        let folder = Folder::new();
        let images = images(&folder.path().join("data"));
        let recipe = folder.write("recipe.toml", RECIPE);
        let out = folder.at("out");
        (Self { folder, recipe, data: images.arg(), out }, images)
    }

    /// Returns the arguments of `trireme train` with verbose output.
    pub fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let args = ["train", "-v", &self.recipe, "--data", &self.data, "--out", &self.out, "--threads", "1"];
        [&args, more].concat()
    }

    #[track_caller]
    pub fn train(&self, ranks: usize, more: &[&str]) -> ProgramOutput {
        run(ranks, &self.args(more))
    }

    /// Checks that training fails with exit code `code` and exactly one line with these parts, without mpirun and on
    /// two ranks, and that the output folder does not exist.
    #[track_caller]
    pub fn refused(&self, code: i32, more: &[&str], parts: &[&str]) {
        for ranks in [0, 2] {
            self.train(ranks, more).failed(code, parts);
            assert!(!Path::new(&self.out).exists(), "{:?} on {ranks} ranks", files(&self.out));
        }
    }

    /// Works like `refused` with exit code 2, for a recipe with these keys.
    #[track_caller]
    pub fn refused_with(&self, keys: &[&str], parts: &[&str]) {
        self.refused(2, &sets(keys), parts);
    }

    /// Checks the output folder of a run that failed after its start: no model, no temporary file, and no `end` event.
    #[track_caller]
    pub fn assert_no_model(&self) {
        let files = files(&self.out);
        assert!(!files.iter().any(|file| file == "model.h5" || file.contains("tmp")), "{files:?}");
        assert!(events(&self.out, "end").is_empty());
    }

    /// Starts a training run of a thousand epochs and waits for its first steps.
    #[track_caller]
    pub fn endless(&self, ranks: usize) -> Running {
        let mut running = start(trireme(ranks, &self.args(&["--set", "epochs=1000"])));
        running.until_logged(&self.out, 3);
        running
    }
}

/// Changes one byte of a file in place.
pub fn poke(path: &Path, offset: u64, change: impl Fn(u8) -> u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset as usize] = change(bytes[offset as usize]);
    fs::write(path, bytes).unwrap();
}

//! A long training run that writes a checkpoint every two steps. The fault tests interrupt it.

use std::time::{Duration, Instant};

use super::images::{DIGITS, Images};
use super::program::{Folder, ProgramOutput, Running, events, files, logged, run, start, trireme};

/// Time within which all ranks must have ended after a fault.
pub const IN_TIME: Duration = Duration::from_secs(15);

/// Number of training shards that [`Images`] writes.
pub const SHARDS: usize = 4;

const RECIPE: &str = r#"
model = "lenet-caffe"
data = "given with --data"
epochs = 1000
batch = 8
workers = 4

[optimizer]
kind = "sgd"

[schedule]
kind = "constant"
base_lr = 0.001

[augment]
train = ["normalize"]
eval = ["normalize"]
"#;

/// A recipe and a data set in a temporary folder.
pub struct Case {
    pub folder: Folder,
    pub images: Images,
    pub recipe: String,
    pub out: String,
}

impl Case {
    /// Creates a data set with 48 training digits.
    pub fn new() -> Self {
        let folder = Folder::new();
        let images = Images::new(&folder.path().join("data"), DIGITS, 48, 16);
        let recipe = folder.write("recipe.toml", RECIPE);
        let out = folder.at("out");
        Self { folder, images, recipe, out }
    }

    /// Starts a training run that writes a checkpoint every two steps.
    pub fn start(&self, ranks: usize, more: &[&str]) -> Running {
        let data = self.images.arg();
        let often = "checkpoint.every=2 steps";
        let args = ["train", "-v", &self.recipe, "--data", &data, "--out", &self.out, "--threads", "1", "--set", often];
        start(trireme(ranks, &[&args, more].concat()))
    }

    /// Starts the training run and waits until it has done at least three steps.
    #[track_caller]
    pub fn running(&self, ranks: usize, more: &[&str]) -> Running {
        let mut running = self.start(ranks, more);
        running.until("third step", || self.steps() >= 3);
        running
    }

    /// Returns the number of steps in `metrics.jsonl` so far.
    pub fn steps(&self) -> usize {
        logged(&self.out, "\"event\":\"step\"")
    }

    /// Checks that every HDF5 file in the output folder can be evaluated, and that the log has no `end` event.
    #[track_caller]
    pub fn assert_whole(&self) {
        for file in files(&self.out).iter().filter(|f| f.ends_with(".h5") && !f.contains("/.")) {
            let path = format!("{}/{file}", self.out);
            let scored = run(0, &["eval", &path, "--data", &self.images.arg(), "--split", "train"]);
            assert!(scored.status.success(), "{file} is incomplete: {}", scored.stderr);
        }
        assert!(events(&self.out, "end").is_empty());
    }
}

/// Checks that the program failed within [`IN_TIME`].
#[track_caller]
pub fn assert_failed(ended: &ProgramOutput, since: Instant) {
    assert!(!ended.status.success(), "{}", ended.stderr);
    assert!(since.elapsed() < IN_TIME, "{:?}\n{}", since.elapsed(), ended.stderr);
}

//! A small valid run: a recipe, a data set and an output folder. Most tests make one thing in it invalid.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::images::{DIGITS, Images};
use super::program::{
    Folder, PATIENCE, ProgramOutput, Running, events, files, logged, longer, run, sets, start, trireme,
};
use super::setting::Setting;

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

/// Time within which all ranks must have ended after a fault. A pause of the machine for some seconds fits into it.
pub const IN_TIME: Duration = Duration::from_secs(30);

/// Number of training shards that [`Images`] writes.
pub const SHARDS: usize = 4;

pub struct SmallRun {
    pub folder: Folder,
    pub recipe: String,
    pub images: Images,
    pub data: String,
    pub out: String,
}

impl SmallRun {
    /// Creates a data set with 48 training digits.
    pub fn new() -> Self {
        Self::of(|dir| Images::new(dir, DIGITS, 48, 10))
    }

    /// Creates a run and trains it for one step.
    #[track_caller]
    pub fn trained() -> Self {
        let run = Self::new();
        run.train(0, &["--max-steps", "1"]).succeeded();
        run
    }

    /// Creates a run with the images that `images` writes to the given folder.
    pub fn of(images: impl FnOnce(&Path) -> Images) -> Self {
        Self::from(Setting::with(RECIPE, images))
    }

    /// Creates a run that takes longer than any test and writes a checkpoint every two steps.
    pub fn long() -> Self {
        let recipe =
            "epochs = 100000\nbatch = 8\nworkers = 4\nschedule.base_lr = 0.001\ncheckpoint.every = \"2 steps\"\n";
        Self::from(Setting::new(recipe, DIGITS, [48, 16]))
    }

    /// Creates a run with the recipe and the images of a setting.
    pub fn from(setting: Setting) -> Self {
        let Setting { folder, recipe, images, data } = setting;
        Self { out: folder.at("out"), folder, recipe, images, data }
    }

    /// Returns the arguments of `trireme train` with verbose output.
    pub fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let args = ["train", "-v", &self.recipe, "--data", &self.data, "--out", &self.out, "--threads", "1"];
        [&args, more].concat()
    }

    pub fn start(&self, ranks: usize, more: &[&str]) -> Running {
        start(trireme(ranks, &self.args(more)))
    }

    #[track_caller]
    pub fn train(&self, ranks: usize, more: &[&str]) -> ProgramOutput {
        self.start(ranks, more).wait(PATIENCE)
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

    /// Starts a training run that takes longer than any test and waits for its first steps.
    #[track_caller]
    pub fn endless(&self, ranks: usize) -> Running {
        let mut running = self.start(ranks, &["--set", "epochs=100000"]);
        running.until_logged(&self.out, 3);
        running
    }

    /// Starts a training run and waits until it has done at least three steps.
    #[track_caller]
    pub fn running(&self, ranks: usize, more: &[&str]) -> Running {
        let mut running = self.start(ranks, more);
        running.until("third step", || self.steps() >= 3);
        running
    }

    pub fn steps(&self) -> usize {
        logged(&self.out, "\"event\":\"step\"")
    }

    /// Checks that every HDF5 file in the output folder can be evaluated, and that the log has no `end` event.
    #[track_caller]
    pub fn assert_whole(&self) {
        for file in files(&self.out).iter().filter(|f| f.ends_with(".h5") && !f.contains("/.")) {
            let path = format!("{}/{file}", self.out);
            let scored = run(0, &["eval", &path, "--data", &self.data, "--split", "train"]);
            assert!(scored.status.success(), "{file} is incomplete: {}", scored.stderr);
        }
        assert!(events(&self.out, "end").is_empty());
    }
}

/// Checks that the program failed within [`IN_TIME`].
#[track_caller]
pub fn assert_failed(ended: &ProgramOutput, since: Instant) {
    assert!(!ended.status.success(), "{}", ended.stderr);
    assert!(since.elapsed() < longer(IN_TIME), "{:?}\n{}", since.elapsed(), ended.stderr);
}

pub fn poke(path: &Path, offset: u64, change: impl Fn(u8) -> u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset as usize] = change(bytes[offset as usize]);
    fs::write(path, bytes).unwrap();
}

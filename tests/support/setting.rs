//! A recipe and images in a temporary folder, training runs of the real binary on them, and access to the output of these runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use loaders::{ImageSpec, Manifest};

use super::images::Images;
use super::program::{Folder, PATIENCE, ProgramOutput, Running, events, numbers, start, trireme};

pub struct Setting {
    /// The folder for everything. It is removed when dropped.
    pub folder: Folder,
    pub recipe: String,
    pub images: Images,
    pub data: String,
}

/// Keys with the same value in the recipes of most tests.
const COMMON: [(&str, &str); 6] = [
    ("model", "\"lenet-caffe\""),
    ("data", "\"given with --data\""),
    ("optimizer.kind", "\"sgd\""),
    ("schedule.kind", "\"constant\""),
    ("augment.train", "[\"normalize\"]"),
    ("augment.eval", "[\"normalize\"]"),
];

/// Adds the common keys that the recipe lacks: the model, the data, the kinds of the optimizer and of the schedule, and
/// the transforms. A recipe may have sections or keys like `optimizer.kind`.
pub fn with_common_keys(recipe: &str) -> String {
    let (mut section, mut own) = (String::new(), Vec::new());
    for line in recipe.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((key, _)) = line.split_once(" = ") {
            own.push(format!("{section}{key}"));
        }
    }
    let missing = COMMON.iter().filter(|(key, _)| !own.iter().any(|own| own == key));
    missing.map(|(key, value)| format!("{key} = {value}\n")).collect::<String>() + recipe
}

impl Setting {
    /// Creates a data set with this many training and test images. `recipe` may omit the model, the kinds of the optimizer and of the
    /// schedule, and the transforms: then `lenet-caffe` is trained with SGD at a constant rate on normalised images.
    pub fn new(recipe: &str, image: ImageSpec, [train, test]: [u64; 2]) -> Self {
        Self::with(recipe, |dir| Images::new(dir, image, train, test))
    }

    /// Works like `new`, but `images` creates the data set in the folder it gets.
    pub fn with(recipe: &str, images: impl FnOnce(&Path) -> Images) -> Self {
        let folder = Folder::new();
        let images = images(&folder.path().join("data"));
        let recipe = folder.write("recipe.toml", with_common_keys(recipe));
        Self { folder, recipe, data: images.arg(), images }
    }

    /// Copies the images to a new folder `name`, with a changed `dataset.json`. Returns its path.
    pub fn described(&self, name: &str, change: impl FnOnce(&mut Manifest)) -> String {
        let folder = self.folder.path().join(name);
        self.images.copy_to(&folder);
        let mut manifest = self.images.manifest.clone();
        change(&mut manifest);
        manifest.write(&folder).unwrap();
        folder.display().to_string()
    }

    pub fn out(&self, name: &str) -> String {
        self.folder.at(name)
    }

    /// Returns the command that trains into the output folder `out` on `ranks` ranks, or without mpirun if `ranks` is
    /// 0, with verbose output. `more` may name another data set.
    pub fn command(&self, out: &str, ranks: usize, more: &[&str]) -> Command {
        let data = if more.contains(&"--data") { &[][..] } else { &["--data", &self.data] };
        trireme(ranks, &[&["train", "-v", &self.recipe, "--out", &self.out(out)], data, more].concat())
    }

    /// Starts this command with one compute thread per rank.
    pub fn start(&self, out: &str, ranks: usize, more: &[&str]) -> Running {
        start(self.command(out, ranks, &[&["--threads", "1"], more].concat()))
    }

    /// Starts a training run and waits for its third line in the log.
    #[track_caller]
    pub fn under_way(&self, out: &str, ranks: usize, more: &[&str]) -> Running {
        let mut running = self.start(out, ranks, more);
        running.until_logged(&self.out(out), 3);
        running
    }

    /// Trains with one compute thread per rank and waits for the end, successful or not.
    #[track_caller]
    pub fn train(&self, out: &str, ranks: usize, more: &[&str]) -> ProgramOutput {
        self.start(out, ranks, more).wait(PATIENCE)
    }

    /// Trains successfully and returns the path of the output folder.
    #[track_caller]
    pub fn trained(&self, out: &str, ranks: usize, more: &[&str]) -> String {
        self.train(out, ranks, more).succeeded();
        self.out(out)
    }

    /// Returns the digest of the last complete run into `out`.
    #[track_caller]
    pub fn digest(&self, out: &str) -> String {
        let ends = events(&self.out(out), "end");
        ends.last().expect("an end")["digest"].as_str().expect("a digest").to_string()
    }

    pub fn losses(&self, out: &str) -> Vec<f64> {
        numbers(&self.out(out), "step", "loss")
    }

    /// Checks that the losses of all steps differ by less than this part.
    #[track_caller]
    pub fn assert_losses_near(&self, out: &str, expected: &str, tolerance: f64) {
        let (got, want) = (self.losses(out), self.losses(expected));
        assert_eq!((got.len(), got.is_empty()), (want.len(), false), "{out} and {expected}: numbers of steps");
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!((got / want - 1.0).abs() < tolerance, "{out}, loss of step {}: expected {want}, got {got}", i + 1);
        }
    }

    #[track_caller]
    pub fn model(&self, out: &str) -> Vec<u8> {
        let path = Path::new(&self.out(out)).join("model.h5");
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Starts the run in `out`, or continues it, and waits for its success. Removes an earlier model first, so that
    /// `model.h5` is always the result of the last part.
    #[track_caller]
    pub fn resumed(&self, out: &str, ranks: usize, more: &[&str]) -> ProgramOutput {
        let _ = fs::remove_file(Path::new(&self.out(out)).join("model.h5"));
        self.train(out, ranks, &[more, &["--resume", "auto"]].concat()).succeeded()
    }

    /// Checks that two runs have the same digest, losses and bytes of `model.h5`.
    #[track_caller]
    pub fn assert_same_bits(&self, out: &str, expected: &str) {
        assert_eq!(self.digest(out), self.digest(expected), "{out} and {expected}");
        assert_eq!(self.losses(out), self.losses(expected), "{out} and {expected}");
        assert!(self.model(out) == self.model(expected), "model.h5 differs in {out} and {expected}");
    }

    /// Trains once on a single rank and once for each entry of `ranks`, and checks that all results are bit-identical.
    /// Each run writes to a folder named after its number of ranks. Returns the path of the folder `1`.
    #[track_caller]
    pub fn assert_ranks_change_nothing(&self, ranks: &[usize], more: &[&str]) -> String {
        let one = self.trained("1", 1, more);
        for ranks in ranks {
            let out = ranks.to_string();
            self.trained(&out, *ranks, more);
            self.assert_same_bits(&out, "1");
        }
        one
    }

    /// Checks that a run in parts has the same bits as the run in `whole`. Each stop is a number of ranks and the step
    /// at which they end. The last part runs on `ranks` ranks. The output folder is `parts`.
    #[track_caller]
    pub fn assert_stops_change_nothing(&self, whole: &str, stops: &[(usize, &str)], ranks: usize, more: &[&str]) {
        for (ranks, step) in stops {
            self.resumed("parts", *ranks, &[more, &["--max-steps", step]].concat());
        }
        self.resumed("parts", ranks, more);
        self.assert_same_bits("parts", whole);
    }

    /// Checks that the mean loss of the last `last` steps is below `share` times the mean loss of the first `first` steps.
    #[track_caller]
    pub fn assert_learns(&self, out: &str, first: usize, last: usize, share: f64) {
        let losses = self.losses(out);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let falls = mean(&losses[losses.len() - last..]) < share * mean(&losses[..first]);
        assert!(falls, "the loss does not fall: {losses:?}");
    }
}

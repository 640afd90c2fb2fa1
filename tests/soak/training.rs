//! The training runs: a recipe, a data set and the reference results, which a run without faults has computed beforehand.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::diary::Settings;
use crate::place::Place;
use crate::reference::Reference;
use support::images::{DIGITS, Images, THINGS, offset_of};
use support::program::{Folder, PATIENCE, Running, events, start, trireme};
use support::setting::with_common_keys;
use support::small_run::poke;

/// A recipe with batch norm, augmentation, weight averages and momentum. An invalid record ends the run.
const RESIDUAL: &str = r#"
model = "resnet20"
epochs = 100000
batch = 16
workers = 4
optimizer.momentum = 0.9
optimizer.nesterov = true
optimizer.weight_decay = 1e-4
schedule.kind = "cosine"
schedule.base_lr = 0.02
ema.decay = 0.99
augment.train = ["pad_crop(4)", "flip", "normalize"]
reduce.codec = "exact"
"#;

/// A recipe with Adam for a data set with damaged records. The loader skips them.
const SKIPPING: &str = r#"
epochs = 100000
batch = 24
workers = 4
optimizer.kind = "adam"
schedule.base_lr = 0.0002
augment.train = ["pad_crop(2)", "normalize"]
reduce.codec = "exact"
loader.on_corrupt = "skip"
"#;

/// Number of steps of the trial run that measures the time per step.
const TRIAL: u64 = 24;

/// Offset in bytes from the start of a record. At this offset every record has pixels, because its framing and keys are shorter.
const IN_THE_PIXELS: u64 = 400;

/// A recipe, its data set and the expected results.
pub struct Training {
    pub name: &'static str,
    pub recipe: String,
    /// The data set. Models store its path, so a model matches the reference only if the path is the same.
    pub images: Images,
    /// If true, a damaged record is skipped. Otherwise it ends the run.
    pub skips: bool,
    /// Step at which a lap ends.
    pub last: u64,
    /// The expected results up to that step.
    pub reference: Reference,
}

impl Training {
    /// Creates both data sets and recipes and computes their reference results.
    pub fn all(folder: &Folder, settings: &Settings) -> Vec<Self> {
        let at = |name: &str| folder.path().join(name);
        let residual = Images::new(&at("residual-data"), THINGS, 96, 32);
        let skipping = Images::new(&at("skipping-data"), DIGITS, 360, 80);
        for (shard, records) in [(0, &[3, 4, 70][..]), (2, &[0])] {
            spoil(&skipping.shard("train", shard), records);
        }
        vec![
            Self::with_reference(folder, settings, ("residual", RESIDUAL), residual, false),
            Self::with_reference(folder, settings, ("skipping", SKIPPING), skipping, true),
        ]
    }

    fn with_reference(
        folder: &Folder,
        settings: &Settings,
        (name, recipe): (&'static str, &str),
        images: Images,
        skips: bool,
    ) -> Self {
        let recipe = folder.write(&format!("{name}.toml"), with_common_keys(recipe));
        let mut training = Self { name, recipe, images, skips, last: TRIAL, reference: Reference::default() };
        let trial = folder.at("trial");
        training.undisturbed(&trial);
        let times = events(&trial, "step").into_iter().filter_map(|step| step["step_ms"].as_f64());
        let mut times: Vec<f64> = times.skip(TRIAL as usize / 3).collect();
        times.sort_by(f64::total_cmp);
        let steps = settings.lap().as_secs_f64() * 1e3 / times[times.len() / 2];
        fs::remove_dir_all(&trial).unwrap_or_else(|e| panic!("{trial}: {e}"));
        training.last = steps.clamp(60.0, 4000.0) as u64;
        let out = folder.at("reference");
        training.undisturbed(&out);
        training.reference = Reference::read(&out);
        fs::remove_dir_all(&out).unwrap_or_else(|e| panic!("{out}: {e}"));
        training
    }

    /// Trains to the last step on two ranks without faults and keeps every checkpoint.
    fn undisturbed(&self, out: &str) {
        let mut command = self.command(2, &self.images.arg(), out);
        command.args(["--max-steps", &self.last.to_string(), "--set", "checkpoint.keep=1000"]);
        start(command).wait(10 * PATIENCE).succeeded();
    }

    pub fn command(&self, ranks: usize, data: &str, out: &str) -> Command {
        let every = format!("checkpoint.every={} steps", (self.last / 24).clamp(3, 40));
        trireme(ranks, &["train", "-v", &self.recipe, "--data", data, "--out", out, "--threads", "1", "--set", &every])
    }

    pub fn start(&self, ranks: usize, place: &Place, more: &[&str]) -> Running {
        let mut command = self.command(ranks, &place.data, &place.out);
        place.apply(command.args(more));
        start(command)
    }
}

/// Flips a byte in the pixels of these records.
fn spoil(path: &Path, records: &[usize]) {
    records.iter().for_each(|&record| poke(path, offset_of(path, record) + IN_THE_PIXELS, |byte| byte ^ 0x20));
}

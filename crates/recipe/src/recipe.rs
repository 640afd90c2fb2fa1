//! A whole recipe: the keys outside of sections, and the sections.

use std::str::FromStr;

use backend::Precision;
use engine::optim::{OptimizerSpec, ScheduleSpec};
use loaders::Shuffle;
use schema::{Parsed, Range, TextForm, section};

use super::distill::DistillSpec;
use super::error::Error;
use super::loss::LossSpec;
use super::mix::MixSpec;
use super::scoring::{Eval, Stop};
use super::sections::{Augment, Checkpoint, Ema, Freeze, Init, Loader, Log, Reduce};
use super::sync::Sync;

section! {
    /// The run as a whole.
    pub struct Recipe {
        /// Network: its name in the catalogue, or a file NAME.toml or NAME.onnx that describes it. The path is relative to the recipe's
        /// folder, or on the command line to the current directory.
        required model: String;
        /// Whether training starts from the weights of an ONNX file, or from random ones.
        optional model_weights: bool = true;
        /// Data set: a folder with dataset.json, relative to the recipe's folder. If it is not there, it is searched in the current
        /// directory. On the command line the path is relative to the current directory.
        // the data set itself is compared, not its folder
        required data: String => changeable;
        /// Passes over the training split: how long the run is. This or steps.
        absent epochs: u32 = "by steps", in Range::AtLeast(1.0);
        /// Optimizer steps of the whole run, in place of epochs: it and its schedule may end within an epoch.
        absent steps: u64 = "by epochs", in Range::AtLeast(1.0);
        /// Root of every random draw.
        default seed: u64 = 1;
        /// Images a step, over all ranks.
        required batch: usize, in Range::AtLeast(1.0);
        /// Logical shares of each batch, at least as many as ranks.
        absent workers: usize = "the ranks of the first start", in Range::AtLeast(1.0);
        /// Order of the samples: all mixed, or each worker mixes k shards at a time.
        default shuffle: Parsed<Mixing> = Parsed::new("full", Mixing(Shuffle::Full));
        /// Every class has the same share of an epoch's draws: images of rare classes come more than once, of frequent ones not in every
        /// epoch.
        optional balanced: bool = false;
        /// Number format of the arithmetic; "f16" needs a GPU, "bf16" a GPU or a CPU with AVX512-BF16.
        default precision: Precision = Precision::F32;
        /// GPU, f32: products may round their factors to tf32, 11 bits.
        default tf32: bool = false;
        /// GPU: only algorithms that give the same bits again; integer codecs imply it.
        default deterministic: bool = false;
        /// Share of the target spread evenly over all classes.
        default label_smoothing: f64 = 0.0, in Range::Fraction;
        /// How the ranks keep one model.
        default sync: Sync = Sync::Allreduce;
        /// Batch normalisation over the whole batch instead of each worker's share; needs workers = ranks.
        default sync_bn: bool = false;
        /// The last normalisation of each residual branch starts with scale 0, so that a block starts as the identity.
        default zero_init_residual: bool = false;
        /// Split scored after each epoch. The best checkpoint, `[stop]` and the plateau schedule follow its scores. If this is validation,
        /// the test split is scored at the end of the run.
        absent eval_split: String = "validation, else test";
        /// First weights.
        section init: Init;
        /// Parameters that are not trained.
        section freeze: Freeze;
        /// Update rule.
        section optimizer: OptimizerSpec;
        /// Learning rate.
        section schedule: ScheduleSpec;
        /// Averages of the weights.
        section ema: Ema;
        /// Scoring while the run trains.
        section eval: Eval;
        /// The end of a run by its scores.
        section stop: Stop;
        /// Transforms.
        section augment: Augment;
        /// What is minimised.
        section loss: LossSpec;
        /// A teacher.
        section distill: DistillSpec;
        /// Mixing of images with each other.
        section mix: MixSpec;
        /// Exchange of gradients.
        section reduce: Reduce;
        /// Reading of the data set.
        section loader: Loader;
        /// Density of the log.
        section log: Log;
        /// Files under checkpoints/.
        section checkpoint: Checkpoint;
    }
}

/// The value of `shuffle`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing(Shuffle);

impl FromStr for Mixing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl TextForm for Mixing {
    const EXPECTED: &'static str = "\"full\" or \"window(k)\"";
}

impl Recipe {
    /// How the samples of an epoch are mixed.
    pub fn mixing(&self) -> Shuffle {
        self.shuffle.value().0
    }

    /// Optimizer steps of the whole run, where an epoch has so many.
    pub fn total_steps(&self, steps_per_epoch: u64) -> u64 {
        self.steps.unwrap_or_else(|| u64::from(self.epochs.unwrap_or(0)).saturating_mul(steps_per_epoch))
    }

    /// The recipe as TOML; [`Recipe::parse`] reads it back to an equal one.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::Write { why: e.to_string() })
    }
}

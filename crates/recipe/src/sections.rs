//! A whole recipe: its sections, the keys outside of sections, and the values that depend on the number of ranks. `[optimizer]` and
//! `[schedule]` are in [`engine::optim`].

use std::str::FromStr;
use std::time::Duration;

use backend::Precision;
use engine::optim::score::ScoreName;
use engine::optim::{Averaging, OptimizerSpec, ScheduleSpec};
use loaders::transform::{FAST_DECODE, IGNORE_EXIF};
use loaders::{Io, MOST_THREADS, Shuffle};
use schema::{KeyType, KeyValue, Parsed, Range, TextForm, section};

use super::error::Error;
use super::loss::{DistillSpec, LossSpec, MixSpec};
use super::options::{Codec, ImageCache, OnCorrupt, Overlap, Sync, TransportSetting};
use super::rename::Rename;
use super::scoring::{Eval, Every, Stop};

section! {
    /// Averages of the weights.
    pub struct Ema {
        /// Largest decay of the averages: min(this, (1 + t) / (10 + t)) at step t.
        absent decay: f64 = "no averages", in Range::OpenFraction(0.999);
        /// In place of decay, stochastic weight averaging: the plain mean of the weights after this epoch, counted from 1, and later ones.
        absent swa_start: u32 = "no averages", in Range::AtLeast(1.0);
        /// Epochs between two weights of the mean of swa_start.
        optional swa_every: u32 = 1, in Range::AtLeast(1.0);
    }
}

section! {
    /// Weights that a run starts from in place of random ones. [formats.md](formats.md#weights-of-other-programs) says what is read.
    pub struct Init {
        /// File of weights: a run's folder, model.h5, a checkpoint, a .safetensors file, PyTorch's .pth, Keras's .h5, or ONNX.
        absent from: String = "random weights";
        /// Key of the dictionary to read from a .pth, such as "state_dict_ema" or "model_ema" for averaged weights.
        absent key: String = "the weights themselves";
        /// Tensors of the network that start at random all the same, as patterns, such as "fc.*".
        absent exclude: Vec<String> = "[]";
        /// Every tensor of the network must be in the file with its shape, and every tensor of the file in the network; false: what does
        /// not fit is listed, and starts at random.
        optional strict: bool = true;
        /// Names in the file and what they are here: regular expressions for whole names, each with its replacement, such as
        /// ["backbone.(.*)", "$1"]; applied one after another.
        absent r#match: Vec<[String; 2]> = "[]";
        /// A small convolution of the images, by its name, that starts as a whitening of patches of the training images as
        /// augment.eval makes them; freeze its weight to keep it so.
        absent whiten: String = "none";
    }
}

section! {
    /// Parameters that are not trained: no gradients are computed for them and none are exchanged.
    pub struct Freeze {
        /// Parameters, as patterns, such as "layer1.*". A batch normalisation without trained parameters uses its running statistics.
        absent patterns: Vec<String> = "[]";
        /// Epochs after which they are trained, too.
        absent epochs: u32 = "never", in Range::AtLeast(1.0);
    }
}

section! {
    /// Transforms as `name` or `name(arguments)`, applied in order.
    pub struct Augment {
        /// Transforms of training images, in order.
        default train: Vec<String> = Vec::new();
        /// Transforms of scored and predicted images, in order. They may end in another size than those of train.
        default eval: Vec<String> = Vec::new();
        /// Progressive resizing: pairs of an epoch, from 0, and the shorter side of training images from it on, as [[0, 128], [6, 160],
        /// [12, 224]]; every size in train is multiplied accordingly. For networks whose parameters do not depend on the size.
        absent sizes: Vec<[u32; 2]> = "one size";
        /// Whether images are rotated as their EXIF orientation says. With false they are used as stored, like `ignore_exif` at the start
        /// of both lists.
        optional exif: bool = true;
        /// Whether training may decode JPEGs at 1/2 or 1/4 size if a resize shrinks them to half or less, like `fast_decode` at the start
        /// of train. This is faster, but resized pixels differ slightly.
        optional fast_decode: bool = true;
        /// How often each training image of a batch comes in it, each time transformed anew (repeated augmentation). An epoch has as many
        /// images as without, and so 1 / repeats of the different ones; needs shuffle = "full".
        optional repeats: u32 = 1, in Range::AtLeast(1.0);
    }
}

section! {
    /// How gradients are summed over the ranks.
    pub struct Reduce {
        /// How gradients travel between ranks.
        default codec: Codec = Codec::default();
        /// Size of one allreduce in MB (10^6 bytes) of gradients.
        default bucket_mb: f64 = 4.0, in Range::Positive;
        /// GPU: how gradients reach the other ranks, with CUDA-aware MPI, through the host's memory, or with NCCL.
        default path: TransportSetting = TransportSetting::Auto => changeable;
        /// Reduces while backward still runs; "auto": where a core is spare.
        default overlap: Overlap = Overlap::Auto => changeable;
        /// Adds what was cut off to the next step's gradient.
        optional error_feedback: bool = false;
        /// Smaller tensors are sent as exact.
        optional min_elements: usize = 432;
        /// Rounds the last layer's gradients too.
        optional logits: bool = false;
        /// Deviations at which a gradient is clipped; 0: never.
        optional clip: f64 = 2.5, in Range::AtLeast(0.0);
        /// Every so many epochs comes one whose gradients go as exact, as in TernGrad; what error feedback holds waits.
        absent floating_grad_epoch: u32 = "none", in Range::AtLeast(1.0);
        /// Parameters that are sent as exact, as patterns, such as "conv1.*".
        absent exempt: Vec<String> = "[]";
    }
}

section! {
    /// How training images are read.
    pub struct Loader {
        /// Loader threads a rank.
        absent threads: usize = "by the number of cores", in Range::Between(1.0, MOST_THREADS as f64) => changeable;
        /// Batches in flight a rank; 0: as many as keep its threads at work, 3 or 4 as a rule.
        default slots: usize = 0 => changeable;
        /// How records are read; "auto": mmap on local disks, long reads from network file systems.
        default io: RecordAccess = RecordAccess(Io::Auto) => changeable;
        /// Memory in MB (10^6 bytes) for shards that are read whole.
        default buffer_mb: f64 = 256.0, in Range::Positive => changeable;
        /// GPU: where all training images are kept as bytes; the device crops and flips them with the same draws.
        default cache: ImageCache = ImageCache::None;
        /// Training records that cannot be used end the run, or are left out and counted.
        default on_corrupt: OnCorrupt = OnCorrupt::Fail;
    }
}

section! {
    /// Density of the log, and what is made of it.
    pub struct Log {
        /// Steps between step lines in metrics.jsonl.
        default every: u64 = 1, in Range::AtLeast(1.0) => changeable;
        /// Seconds between progress lines in run.log, and on stderr if it is not a terminal.
        absent seconds: f64 = "5, or 50 steps", in Range::Positive => changeable;
        /// Whether report.html is written when the run ends or stops.
        optional report: bool = true => changeable;
        /// Whether an event file for TensorBoard is written into OUT.
        optional tensorboard: bool = true => changeable;
        /// Steps between two measurements of the parameters and gradients of every layer.
        absent histograms: u64 = "never", in Range::AtLeast(1.0) => changeable;
    }
}

section! {
    /// Files under checkpoints/.
    pub struct Checkpoint {
        /// Time, steps or epochs between two checkpoints.
        default every: Parsed<Every> = Parsed::new("10m", Every::Time(Duration::from_secs(600))) => changeable;
        /// Files kept, the newest; the best is kept beside them.
        default keep: usize = 3, in Range::AtLeast(1.0) => changeable;
        /// Score by which the best is told.
        absent best_by: Parsed<ScoreName> = "top1" => changeable;
    }
}

impl Ema {
    /// Whether there are averages.
    pub fn is_kept(&self) -> bool {
        self.decay.is_some() || self.swa_start.is_some()
    }

    /// How weights are averaged, where an epoch has so many steps.
    pub fn averaging(&self, steps_per_epoch: u64) -> Option<Averaging> {
        let steps = |epochs: u32| u64::from(epochs) * steps_per_epoch;
        let swa = self.swa_start.map(|start| (steps(start), steps(self.swa_every())));
        let equal = swa.map(|(first, period)| Averaging::Equal { first, period });
        equal.or(self.decay.map(|decay| Averaging::Exponential { decay }))
    }
}

impl Init {
    /// The rules of `match`.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn rules(&self) -> Result<Vec<Rename>, String> {
        self.r#match.iter().flatten().map(Rename::new).collect()
    }
}

impl Augment {
    /// Refuses pairs that do not say of each epoch which size its images have.
    pub fn check_sizes(&self, epochs: Option<u32>) -> Result<(), String> {
        let sizes = self.sizes.as_deref().unwrap_or_default();
        let late = sizes.iter().find(|[from, _]| epochs.is_some_and(|epochs| *from >= epochs));
        match (sizes, late) {
            ([], _) if self.sizes.is_some() => Err("expected pairs as [[0, 128], [6, 160]], got none".into()),
            ([[from, _], ..], _) if *from > 0 => Err(format!("must begin with epoch 0, got {from}")),
            (_, Some([from, _])) => Err(format!("the run ends before epoch {from}; leave it out, or give more epochs")),
            _ if sizes.iter().any(|[_, side]| *side == 0) => Err("images of 0 pixels are none".into()),
            _ => match sizes.windows(2).find(|pair| pair[0][0] >= pair[1][0]) {
                Some([[a, _], [b, _]]) => Err(format!("epochs must ascend, but {a} is followed by {b}")),
                _ => Ok(()),
            },
        }
    }

    /// Returns `train` with the words that `exif` and `fast_decode` add at the start.
    pub fn train_list(&self) -> Vec<String> {
        self.with_head(&self.train, self.fast_decode())
    }

    /// Returns `eval` with the word that `exif` adds at the start.
    pub fn eval_list(&self) -> Vec<String> {
        self.with_head(&self.eval, false)
    }

    fn with_head(&self, list: &[String], fast_decode: bool) -> Vec<String> {
        let exif = (!self.exif()).then_some(IGNORE_EXIF);
        let words = exif.into_iter().chain(fast_decode.then_some(FAST_DECODE));
        words.map(str::to_owned).chain(list.iter().cloned()).collect()
    }
}

impl Log {
    /// Returns the time between two progress lines, if it is set.
    pub fn apart(&self) -> Option<Duration> {
        self.seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

impl Checkpoint {
    /// Time, steps or epochs between two checkpoints.
    pub fn every(&self) -> Every {
        self.every.value()
    }
}

impl TextForm for Every {
    const EXPECTED: &'static str = "a time as \"10m\", \"500 steps\" or \"2 epochs\"";
}

/// The value of `loader.io`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct RecordAccess(pub Io);

impl KeyValue for RecordAccess {
    const TYPE: KeyType = KeyType::Choice(&["auto", "mmap", "read"]);
}

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

//! The whole recipe: its sections, the keys outside of sections, and values that depend on the number of ranks.
//! `[optimizer]` and `[schedule]` are in [`engine::optim`].

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
use super::options::{Codec, ImageCache, OnCorrupt, Overlap, Stem, Sync, TransportSetting};
use super::rename::Rename;
use super::scoring::{Eval, Every, Stop};

section! {
    /// Averages of the weights over the steps.
    pub struct Ema {
        /// Largest decay of the exponential moving average. The decay at step t is min(decay, (1 + t) / (10 + t)). With
        /// lookahead, the fraction of the averages that stays when they move towards the weights.
        absent decay: f64 = "no averages", in Range::OpenFraction(0.999);
        /// Lookahead: the number of steps after which the averages move towards the weights and then replace them. A run
        /// that reaches its planned end ends with the averages.
        absent lookahead: u64 = "no lookahead", in Range::AtLeast(1.0);
        /// With lookahead: the fraction of the averages that stays at step t of T is decay times (t / T) to this power.
        optional lookahead_power: f64 = 0.0, in Range::AtLeast(0.0);
        /// Stochastic weight averaging, instead of decay: the mean of the weights after this epoch, counted from 1, and
        /// after later epochs.
        absent swa_start: u32 = "no averages", in Range::AtLeast(1.0);
        /// Epochs between two sets of weights that swa_start averages.
        optional swa_every: u32 = 1, in Range::AtLeast(1.0);
    }
}

section! {
    /// Settings that replace those of the recipe on NVIDIA GPUs.
    pub struct CudaSettings {
        /// Number format of the arithmetic on an NVIDIA GPU, instead of the key precision.
        absent precision: Precision = "precision";
        /// Whether products of f32 may round their factors to tf32 on an NVIDIA GPU, instead of the key tf32.
        absent tf32: bool = "tf32";
    }
}

section! {
    /// Initial weights from a file instead of random ones. [weights.md](weights.md) lists the formats.
    pub struct Init {
        /// File with weights: the folder of a run, model.h5, a checkpoint, a .safetensors file, PyTorch's .pth, Keras's
        /// .h5, or ONNX. The path is relative to the current directory.
        absent from: String = "random weights";
        /// SHA-256 of the file in 64 hexadecimal digits, as `sha256sum` prints it. A file with another one is refused
        /// before training starts.
        absent sha256: String = "no check";
        /// Key of the dictionary in a .pth file to read weights from, such as "state_dict_ema" or "model_ema" for
        /// averaged weights.
        absent key: String = "the weights themselves";
        /// Patterns of the network's tensors that are not read from the file but start at random, such as "fc.*".
        absent exclude: Vec<String> = "[]";
        /// Whether the tensors of the network and of the file must all match by name and shape. With false, tensors
        /// that do not match are listed, and the network's start at random.
        optional strict: bool = true;
        /// Renaming rules for the file's tensors: pairs of a regular expression for whole names and a replacement, such
        /// as ["backbone.(.*)", "$1"]. The rules are applied one after another.
        absent r#match: Vec<[String; 2]> = "[]";
        /// What to do if the file's first convolution has another number of channels than the images: "repeat" its
        /// channels in order, give each channel their "mean", or start at random ("fresh"). "repeat" and "mean" multiply
        /// the weights by the file's number of channels divided by the number of the images'. For files of three
        /// channels, "repeat" is timm's rule.
        absent stem: Stem = "a different number of channels is an error";
        /// Name of a small convolution that reads the images. Its initial weights are computed from training images so
        /// that they whiten small patches. The images are prepared as in augment.eval. Freeze the weights to keep them.
        absent whiten: String = "none";
    }
}

section! {
    /// Parameters that are not trained. No gradients are computed or exchanged for them.
    pub struct Freeze {
        /// Patterns of these parameters, such as "layer1.*". A batch normalisation without trained parameters uses its
        /// running statistics.
        absent patterns: Vec<String> = "[]";
        /// Number of epochs after which they are trained too.
        absent epochs: u32 = "never", in Range::AtLeast(1.0);
        /// They are trained for this number of epochs and then frozen.
        absent after: u32 = "frozen from the start", in Range::AtLeast(1.0);
    }
}

impl Freeze {
    /// Returns true if the parameters are frozen in an epoch, counted from 0.
    pub fn holds(&self, epoch: u32) -> bool {
        epoch >= self.after.unwrap_or(0) && self.epochs.is_none_or(|epochs| epoch < epochs)
    }
}

section! {
    /// Transforms as `name` or `name(arguments)`, applied in order.
    pub struct Augment {
        /// Transforms of training images, in order.
        default train: Vec<String> = Vec::new();
        /// Transforms of images for evaluation and prediction, in order. The final image size may differ from that of
        /// train.
        default eval: Vec<String> = Vec::new();
        /// Progressive resizing: pairs of an epoch, from 0, and the shorter side of training images from that epoch on,
        /// such as [[0, 128], [6, 160], [12, 224]]. All sizes in train are scaled accordingly. The network's parameters
        /// must not depend on the image size.
        absent sizes: Vec<[u32; 2]> = "one size";
        /// Whether images are rotated according to their EXIF orientation. With false they are used as stored, like
        /// `ignore_exif` at the start of both lists.
        optional exif: bool = true;
        /// Whether training may decode JPEGs at 1/2 or 1/4 size if a resize shrinks them to half or less, like
        /// `fast_decode` at the start of train. This is faster, but resized pixels differ slightly.
        optional fast_decode: bool = true;
        /// Number of times that each training image appears in its batch, each time with other random transforms
        /// (repeated augmentation). An epoch still has the same number of images, so it covers only 1 / repeats of the
        /// data set. Needs shuffle = "full".
        optional repeats: u32 = 1, in Range::AtLeast(1.0);
    }
}

section! {
    /// How gradients are summed over the ranks.
    pub struct Reduce {
        /// Encoding of the gradients that the ranks exchange.
        default codec: Codec = Codec::default();
        /// Size of a bucket in MB (10^6 bytes). A bucket is the part of the gradients that one allreduce sums.
        default bucket_mb: f64 = 4.0, in Range::Positive;
        /// GPU: how gradients reach the other ranks. CUDA-aware MPI, copies in host memory, or NCCL.
        default path: TransportSetting = TransportSetting::Auto => changeable;
        /// Whether gradients are summed during the backward pass. "auto": on GPUs, and on CPUs if every rank has an idle core.
        default overlap: Overlap = Overlap::Auto => changeable;
        /// Whether the part of a gradient that encoding lost is added to the gradient of the next step.
        optional error_feedback: bool = false;
        /// Tensors with fewer elements are encoded as with "exact".
        optional min_elements: usize = 432;
        /// Whether the gradients of the last layer are rounded too.
        optional logits: bool = false;
        /// Number of standard deviations at which gradients are clipped. 0: no clipping.
        optional clip: f64 = 2.5, in Range::AtLeast(0.0);
        /// Every k-th epoch, gradients are encoded as with "exact", as in TernGrad. Error feedback keeps its residuals
        /// for the next epoch.
        absent floating_grad_epoch: u32 = "none", in Range::AtLeast(1.0);
        /// Patterns of parameters that are encoded as with "exact", such as "conv1.*".
        absent exempt: Vec<String> = "[]";
    }
}

section! {
    /// How training images are read.
    pub struct Loader {
        /// Loader threads per rank.
        absent threads: usize = "by the number of cores", in Range::Between(1.0, MOST_THREADS as f64) => changeable;
        /// Batches in flight per rank. 0: as many as keep the threads busy, usually 3 or 4.
        default slots: usize = 0 => changeable;
        /// How records are read. "auto": mmap on local disks, long reads on network file systems.
        default io: RecordAccess = RecordAccess(Io::Auto) => changeable;
        /// Memory in MB (10^6 bytes) for shards that are read as a whole.
        default buffer_mb: f64 = 256.0, in Range::Positive => changeable;
        /// GPU: where all training images are kept as bytes. With "device", the GPU crops and flips them with the same
        /// random draws.
        default cache: ImageCache = ImageCache::None => changeable;
        /// Whether training records that cannot be used end the run, or are skipped and counted.
        default on_corrupt: OnCorrupt = OnCorrupt::Fail;
    }
}

section! {
    /// How much is logged, and which reports are written.
    pub struct Log {
        /// Steps between two step lines in metrics.jsonl.
        default every: u64 = 1, in Range::AtLeast(1.0) => changeable;
        /// Seconds between two progress lines in run.log, and on stderr if it is not a terminal.
        absent seconds: f64 = "5, or 50 steps", in Range::Positive => changeable;
        /// Whether report.html is written when the run ends or stops.
        optional report: bool = true => changeable;
        /// Bands that pictures in report.html and TensorBoard show as red, green and blue, such as [4, 3, 2], or a
        /// single band to show as grey. Counted from 1. Only for images that are not grey or RGB with 8 bits.
        absent bands: Vec<f64> = "the first three, or the first" => changeable;
        /// Whether an event file for TensorBoard is written into OUT.
        optional tensorboard: bool = true => changeable;
        /// Steps between two measurements of the parameters and gradients of all layers.
        absent histograms: u64 = "never", in Range::AtLeast(1.0) => changeable;
    }
}

section! {
    /// Files in the folder checkpoints/.
    pub struct Checkpoint {
        /// Time, steps or epochs between two checkpoints.
        default every: Parsed<Every> = Parsed::new("10m", Every::Time(Duration::from_secs(600))) => changeable;
        /// Number of checkpoints to keep, the newest ones. The best one is kept in addition.
        default keep: usize = 3, in Range::AtLeast(1.0) => changeable;
        /// The score that selects the best checkpoint. Images with classes have "top1", "top5", "loss", "macro_f1" and
        /// "map", images with numbers "loss", "rmse", "mae" and "r2".
        absent best_by: Parsed<ScoreName> = "top1, or loss for numbers" => changeable;
    }
}

impl Ema {
    /// Returns true if the weights are averaged.
    pub fn is_kept(&self) -> bool {
        self.decay.is_some() || self.swa_start.is_some()
    }

    /// Returns how the weights are averaged, or `None` if they are not. `total` is the number of steps in the run.
    pub fn averaging(&self, steps_per_epoch: u64, total: u64) -> Option<Averaging> {
        let steps = |epochs: u32| u64::from(epochs) * steps_per_epoch;
        if let Some(start) = self.swa_start {
            return Some(Averaging::Equal { first: steps(start), period: steps(self.swa_every()) });
        }
        self.decay.map(|decay| match self.lookahead {
            Some(period) => Averaging::Lookahead { period, decay, power: self.lookahead_power(), total },
            None => Averaging::Exponential { decay },
        })
    }
}

impl Init {
    /// Returns the rules of `match`.
    ///
    /// # Errors
    ///
    /// Returns the problem with a rule.
    pub fn rules(&self) -> Result<Vec<Rename>, String> {
        self.r#match.iter().flatten().map(Rename::new).collect()
    }
}

impl Augment {
    /// Checks that the pairs in `sizes` define a valid image size for each epoch.
    pub fn check_sizes(&self, epochs: Option<u32>) -> Result<(), String> {
        let sizes = self.sizes.as_deref().unwrap_or_default();
        let late = sizes.iter().find(|[from, _]| epochs.is_some_and(|epochs| *from >= epochs));
        match (sizes, late) {
            ([], _) if self.sizes.is_some() => Err("expected pairs such as [[0, 128], [6, 160]], got none".into()),
            ([[from, _], ..], _) if *from > 0 => Err(format!("must begin with epoch 0, got {from}")),
            (_, Some([from, _])) => {
                Err(format!("the run ends before epoch {from} begins; remove this pair, or give more epochs"))
            }
            _ if sizes.iter().any(|[_, side]| *side == 0) => Err("a size must be at least 1 pixel, got 0".into()),
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
    /// Returns the numbers of the bands that pictures show, counted from 1. Empty for the default.
    pub fn shown_bands(&self) -> Vec<u32> {
        self.bands.iter().flatten().map(|&number| number as u32).collect()
    }

    /// Returns the time between two progress lines, if it is set.
    pub fn apart(&self) -> Option<Duration> {
        self.seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

impl Checkpoint {
    /// Returns the interval between two checkpoints.
    pub fn every(&self) -> Every {
        self.every.value()
    }
}

impl TextForm for Every {
    const EXPECTED: &'static str = "a time such as \"10m\", \"500 steps\" or \"2 epochs\"";
}

/// How records are read: the value of `loader.io`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct RecordAccess(pub Io);

impl KeyValue for RecordAccess {
    const TYPE: KeyType = KeyType::Choice(&["auto", "mmap", "read"]);
}

section! {
    /// Keys of the run as a whole.
    pub struct Recipe {
        /// Network: its name in the catalogue, or a file NAME.toml or NAME.onnx that describes it. The path is relative
        /// to the recipe's folder or, on the command line, to the current directory.
        required model: String;
        /// Whether training starts from the weights of the ONNX file instead of random ones.
        optional model_weights: bool = true;
        /// Data set: a folder with dataset.json, relative to the recipe's folder. If it does not exist there, it is
        /// searched for in the current directory. On the command line, the path is relative to the current directory.
        // Changeable, because a resumed run compares the data set itself, not its path.
        required data: String => changeable;
        /// Length of the run in passes over the training split. Give either epochs or steps.
        absent epochs: u32 = "set by steps", in Range::AtLeast(1.0);
        /// Length of the run in optimizer steps, instead of epochs. The run and its schedule may end within an epoch.
        absent steps: u64 = "set by epochs", in Range::AtLeast(1.0);
        /// Seed of all random numbers.
        default seed: u64 = 1;
        /// Images per step over all ranks.
        required batch: usize, in Range::AtLeast(1.0);
        /// Divides each batch into this number of parts, at least one per rank. If you set it, the number of ranks changes results only by
        /// rounding.
        absent workers: usize = "the number of ranks of the first start", in Range::AtLeast(1.0);
        /// Order of the samples: all are shuffled together, or each worker shuffles k shards at a time.
        default shuffle: Parsed<ShuffleSetting> = Parsed::new("full", ShuffleSetting(Shuffle::Full));
        /// Whether all classes have the same share of an epoch's images. Images of rare classes then appear more than
        /// once, those of frequent classes not in every epoch.
        optional balanced: bool = false;
        /// Number format of the arithmetic. "f16" needs a GPU, "bf16" needs a GPU or a CPU with AVX512-BF16.
        default precision: Precision = Precision::F32;
        /// GPU with f32: whether products may round their factors to tf32 (11 bits).
        default tf32: bool = false;
        /// GPU: whether only algorithms with reproducible results are used. Integer codecs imply it.
        default deterministic: bool = false;
        /// Share of the target that is spread evenly over all classes.
        default label_smoothing: f64 = 0.0, in Range::Fraction;
        /// How and when the ranks synchronise their models.
        default sync: Sync = Sync::Allreduce;
        /// Whether batch normalisation uses the whole batch instead of each worker's part. Needs workers = ranks.
        default sync_bn: bool = false;
        /// Number of images that batch normalisation normalises together (ghost batch norm). It must divide
        /// batch / workers. A single pass then has the statistics of several smaller ones.
        absent bn_group: usize = "batch / workers", in Range::AtLeast(1.0);
        /// Whether the last normalisation of each residual branch starts with scale 0, so that the block starts as the
        /// identity.
        default zero_init_residual: bool = false;
        /// Split that is evaluated during training. Its scores determine the best checkpoint, `[stop]` and the
        /// plateau schedule. If it is validation, the test split is evaluated at the end of the run.
        absent eval_split: String = "validation, otherwise test";
        /// Other settings for NVIDIA GPUs.
        section cuda: CudaSettings;
        /// Initial weights.
        section init: Init;
        /// Parameters that are not trained.
        section freeze: Freeze;
        /// Optimizer and its settings.
        section optimizer: OptimizerSpec;
        /// Learning rate.
        section schedule: ScheduleSpec;
        /// Averages of the weights.
        section ema: Ema;
        /// Evaluation during training.
        section eval: Eval;
        /// Early end of the run.
        section stop: Stop;
        /// Transforms.
        section augment: Augment;
        /// Loss function.
        section loss: LossSpec;
        /// Distillation from a teacher.
        section distill: DistillSpec;
        /// Mixup and CutMix.
        section mix: MixSpec;
        /// Exchange of gradients.
        section reduce: Reduce;
        /// Reading of the data set.
        section loader: Loader;
        /// How much is logged.
        section log: Log;
        /// Files in the folder checkpoints/.
        section checkpoint: Checkpoint;
    }
}

/// How samples are shuffled: the value of `shuffle`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShuffleSetting(Shuffle);

impl FromStr for ShuffleSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl TextForm for ShuffleSetting {
    const EXPECTED: &'static str = "\"full\" or \"window(k)\"";
}

impl Recipe {
    /// Returns the number of groups into which batch normalisation divides the images of each of `workers` workers.
    pub fn bn_groups(&self, workers: usize) -> usize {
        self.bn_group.map_or(1, |images| (self.batch / workers / images).max(1))
    }

    /// Returns how the samples of an epoch are shuffled.
    pub fn shuffling(&self) -> Shuffle {
        self.shuffle.value().0
    }

    /// Returns the optimizer steps in the whole run.
    pub fn total_steps(&self, steps_per_epoch: u64) -> u64 {
        self.steps.unwrap_or_else(|| u64::from(self.epochs.unwrap_or(0)).saturating_mul(steps_per_epoch))
    }

    /// Empties `[cuda]`. If `device` is `"cuda"`, its settings first replace `precision` and `tf32`. The recipe then
    /// describes the run on this kind of device.
    pub fn adapt_to(&mut self, device: &str) {
        let CudaSettings { precision, tf32 } = std::mem::take(&mut self.cuda);
        if device == "cuda" {
            self.precision = precision.unwrap_or(self.precision);
            self.tf32 = tf32.unwrap_or(self.tf32);
        }
    }

    /// Returns true if the run computes in f16 on some kind of device.
    pub fn may_use_f16(&self) -> bool {
        [Some(self.precision), self.cuda.precision].contains(&Some(Precision::F16))
    }

    /// Converts the recipe to TOML. [`Recipe::parse`] reads it back to an equal recipe.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::Write { why: e.to_string() })
    }
}

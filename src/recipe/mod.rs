//! The recipe: everything that defines what a run computes, as one TOML file.
//! Reading is in `load`, the table of keys in `keys`; how long a run takes (ranks, devices) is not in here.

mod check;
mod differ;
mod error;
pub mod every;
pub mod keys;
mod load;
mod nearest;
mod sync;
#[cfg(test)]
mod tests;

use crate::comm::codec;
pub use crate::optim::schedule::{ScheduleError, ScheduleSpec};
use crate::optim::schedule::{maybe_number, number};
pub use crate::optim::spec::OptimizerSpec as Optimizer;
pub use error::Error;
pub use every::Every;
use loaders::Shuffle;
pub use nearest::{did_you_mean, matches, nearest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use sync::Sync;

/// The names that this build knows, against which a recipe is checked.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Networks of the catalogue.
    pub models: &'a [&'a str],
    /// Transforms, by bare name: `pad_crop`.
    pub transforms: &'a [&'a str],
}

/// A recipe. See [`keys::KEYS`] for each key's meaning and default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Network, by its name in the catalogue.
    pub model: String,
    /// Folder of the data set; relative to the current directory.
    pub data: String,
    /// Passes over the training split, >= 1.
    pub epochs: u32,
    /// Root of every random draw.
    #[serde(default = "default::seed")]
    pub seed: u64,
    /// Images a step over all ranks, >= workers.
    pub batch: usize,
    /// Logical shares of each batch; set by [`Recipe::resolve`] where the file is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// How the samples of an epoch are mixed: `full` or `window(k)`, see [`Recipe::mixing`].
    #[serde(default = "default::shuffle")]
    pub shuffle: String,
    /// Number format, one of [`keys::PRECISIONS`].
    #[serde(default = "default::precision")]
    pub precision: String,
    /// With GPUs and `f32`: whether factors of products may be rounded to 11 bits.
    #[serde(default)]
    pub tf32: bool,
    /// With GPUs: only algorithms that give the same bits again.
    #[serde(default)]
    pub deterministic: bool,
    /// Share of the target spread evenly over all classes, in [0, 1).
    #[serde(default, serialize_with = "number")]
    pub label_smoothing: f64,
    /// How the ranks keep one model.
    #[serde(default)]
    pub sync: Sync,
    /// Batch normalisation over the whole batch instead of each worker's share.
    #[serde(default)]
    pub sync_bn: bool,
    /// Whether the last norm of each residual branch starts with scale 0.
    #[serde(default)]
    pub zero_init_residual: bool,
    /// Split scored after each epoch; see [`eval_split`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_split: Option<String>,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Learning rate.
    pub schedule: ScheduleSpec,
    /// Moving averages of the weights.
    #[serde(default, skip_serializing_if = "Ema::is_off")]
    pub ema: Ema,
    /// Transforms.
    #[serde(default)]
    pub augment: Augment,
    /// Gradient exchange.
    #[serde(default)]
    pub reduce: Reduce,
    /// Prefetching.
    #[serde(default)]
    pub loader: Loader,
    /// Log density.
    #[serde(default)]
    pub log: Log,
    /// Files under `checkpoints/`.
    #[serde(default)]
    pub checkpoint: Checkpoint,
}

impl Optimizer {
    /// Weight decay of the parameter of this name and shape: `weight_decay`, or 0 if `no_decay` spares it.
    pub fn decay_of(&self, parameter: &str, shape: &[usize]) -> f64 {
        let spared = self.spares(&self.no_decay, parameter, shape);
        if spared { 0.0 } else { self.weight_decay }
    }

    /// Whether the parameter may have a learning rate of its own: unless `no_adapt` spares it.
    pub fn adapts(&self, parameter: &str, shape: &[usize]) -> bool {
        !self.spares(&self.no_adapt, parameter, shape)
    }

    /// Without patterns LARS spares biases and batch norm, which are the parameters of one dimension.
    fn spares(&self, patterns: &Option<Vec<String>>, parameter: &str, shape: &[usize]) -> bool {
        match patterns {
            Some(patterns) => patterns.iter().any(|pattern| matches(pattern, parameter)),
            None => self.kind == "lars" && shape.len() == 1,
        }
    }
}

/// The `[ema]` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ema {
    /// Largest decay of the averages, in (0, 1); absent: no averages.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub decay: Option<f64>,
}

impl Ema {
    fn is_off(&self) -> bool {
        self.decay.is_none()
    }
}

/// The `[augment]` section: transforms as `name` or `name(arguments)`, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// For training images.
    pub train: Vec<String>,
    /// For evaluated and predicted images.
    pub eval: Vec<String>,
}

/// The `[reduce]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reduce {
    /// How gradients travel, one of [`keys::CODECS`].
    pub codec: String,
    /// Size of one allreduce in MB (10^6 bytes) of gradients, > 0.
    #[serde(serialize_with = "number")]
    pub bucket_mb: f64,
    /// The gradients' way out of a device's memory, one of [`keys::PATHS`].
    pub path: String,
    /// Whether reduction runs beside backward.
    pub overlap: Overlap,
    /// Biased codecs: what was cut off is added to the next step's gradient; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_feedback: Option<bool>,
    /// Codecs that round: smaller tensors go as `exact`; see [`Reduce::min_elements`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_elements: Option<usize>,
    /// Codecs that round: whether they take the last layer too; false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits: Option<bool>,
    /// `ternary`: deviations at which it clips, 0 not at all; see [`Reduce::clip`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub clip: Option<f64>,
    /// Codecs that round: patterns (see [`matches()`]) of parameters that go as `exact`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exempt: Option<Vec<String>>,
}

impl Reduce {
    /// `min_elements`, or its default: ResNet-20's smallest convolution is rounded, its vectors are not.
    pub fn min_elements(&self) -> usize {
        self.min_elements.unwrap_or(432)
    }

    /// `clip`, or TernGrad's 2.5.
    pub fn clip(&self) -> f64 {
        self.clip.unwrap_or(2.5)
    }
}

/// `reduce.overlap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Where a core is spare.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// The `[loader]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Loader {
    /// Loader threads a rank, >= 1; absent: by the number of cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Batches in flight; 0: threads + 2.
    pub slots: usize,
    /// How records are read, one of [`keys::IOS`].
    pub io: String,
    /// Memory in MB (10^6 bytes) for shards that are read whole, > 0.
    #[serde(serialize_with = "number")]
    pub buffer_mb: f64,
    /// Where training images are kept, one of [`keys::CACHES`].
    pub cache: String,
    /// What becomes of a training record that cannot be used, one of [`keys::ON_CORRUPT`].
    pub on_corrupt: String,
}

/// The `[log]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Steps between step lines in metrics.jsonl, >= 1.
    pub every: u64,
}

/// The `[checkpoint]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// How much may pass between two, see [`Checkpoint::every`].
    pub every: String,
    /// Files kept, the newest, >= 1; the best is kept beside them.
    pub keep: usize,
}

impl Checkpoint {
    /// How much may pass between two; checked when the recipe was read.
    pub fn every(&self) -> Every {
        self.every.parse().unwrap_or(Every::Epochs(1))
    }
}

mod default {
    pub fn seed() -> u64 {
        1
    }

    pub fn precision() -> String {
        "f32".into()
    }

    pub fn shuffle() -> String {
        "full".into()
    }
}

impl Default for Reduce {
    fn default() -> Self {
        Reduce {
            codec: "float".into(),
            bucket_mb: 4.0,
            path: "auto".into(),
            overlap: Overlap::Auto,
            error_feedback: None,
            min_elements: None,
            logits: None,
            clip: None,
            exempt: None,
        }
    }
}

impl Default for Loader {
    fn default() -> Self {
        Loader {
            threads: None,
            slots: 0,
            io: "auto".into(),
            buffer_mb: 256.0,
            cache: "none".into(),
            on_corrupt: "fail".into(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { every: 1 }
    }
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint { every: "10m".into(), keep: 3 }
    }
}

impl Serialize for Overlap {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Overlap::Auto => out.serialize_str("auto"),
            Overlap::On => out.serialize_bool(true),
            Overlap::Off => out.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for Overlap {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(source)? {
            toml::Value::Boolean(true) => Ok(Overlap::On),
            toml::Value::Boolean(false) => Ok(Overlap::Off),
            toml::Value::String(word) if word == "auto" => Ok(Overlap::Auto),
            other => Err(serde::de::Error::custom(format!("expected true, false or \"auto\", got {other}"))),
        }
    }
}

impl Recipe {
    /// Settles what the file may leave to the run: `workers`, if silent, becomes `ranks`.
    ///
    /// Refuses more ranks than workers (a rank would idle) and fewer images a batch than workers.
    pub fn resolve(&mut self, ranks: usize) -> Result<(), Error> {
        let workers = *self.workers.get_or_insert(ranks);
        if ranks > workers {
            return Err(Error::Value {
                place: "workers".into(),
                why: format!(
                    "{ranks} ranks for {workers} workers; start at most {workers} ranks, or set workers to {ranks} or more"
                ),
            });
        }
        if let Some(codec) = codec::find(&self.reduce.codec) {
            check::codec_holds_workers(codec, workers).map_err(|why| Error::Value { place: "workers".into(), why })?;
        }
        check::one_worker_a_rank(self, workers, ranks)?;
        check::batch_holds_workers(self.batch, workers).map_err(|why| Error::Value { place: "batch".into(), why })
    }

    /// How the samples of an epoch are mixed; checked when the recipe was read.
    pub fn mixing(&self) -> Shuffle {
        self.shuffle.parse().unwrap_or_default()
    }

    /// A recipe out of a file of ours, which was checked before it was written.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        toml::from_str(text)
            .map_err(|e| Error::Syntax { file: "the recipe in a checkpoint".into(), why: e.to_string() })
    }

    /// The recipe as TOML; [`Recipe::parse`] reads it back to an equal one.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::Write { why: e.to_string() })
    }
}

/// The split to score: `wanted`, else `test`, else `validation`, as far as the data set has it.
///
/// `Ok(None)`: nothing wanted and neither is there. A wanted split that is missing is an error.
pub fn eval_split(wanted: Option<&str>, available: &[&str]) -> Result<Option<String>, Error> {
    let Some(wanted) = wanted else {
        let default = ["test", "validation"].into_iter().find(|split| available.contains(split));
        return Ok(default.map(str::to_string));
    };
    if available.contains(&wanted) {
        return Ok(Some(wanted.to_string()));
    }
    Err(Error::Value {
        place: "eval_split".into(),
        why: format!(
            "the data set has no split \"{wanted}\"; it has {}{}",
            keys::quoted(available),
            did_you_mean(wanted, available)
        ),
    })
}

//! The table of every key a recipe may hold: its path, what it takes, and one line of documentation.
//! Checking, `--set`, the help text and the tests all read this table, so that none of them can drift.

use super::sync;
use crate::comm::codec;

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A way for ranks to keep one model, see [`Sync`](super::Sync).
    Sync,
    /// An integer >= 0.
    Count,
    /// An integer or a float, finite.
    Number,
    /// `true` or `false`.
    Switch,
    /// `true`, `false` or `"auto"`.
    AutoSwitch,
    /// The given word, or a number.
    WordOrNumber(&'static str),
    /// A list of strings.
    Texts,
    /// A list of numbers.
    Numbers,
}

/// One key of the recipe.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Path, as `--set` takes it: `optimizer.momentum`.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Whether a recipe without it is refused.
    pub required: bool,
    /// One line: meaning, unit, default.
    pub doc: &'static str,
}

const fn key(path: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { path, kind, required: false, doc }
}

const fn required(path: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { path, kind, required: true, doc }
}

/// Number formats of the arithmetic.
pub const PRECISIONS: &[&str] = &["f32", "bf16", "f16"];
/// Optimizers of this build.
pub const OPTIMIZERS: &[&str] = &["sgd", "adam", "adamw", "rmsprop", "lars"];
/// Forms of RMSProp.
pub const FORMS: &[&str] = &["torch", "tf"];
/// Learning-rate schedules of this build.
pub const SCHEDULES: &[&str] = &["constant", "step", "cosine", "polynomial", "exponential"];
/// Ways of reading records.
pub const IOS: &[&str] = &["auto", "mmap", "read"];
/// Where training images may be kept.
pub const CACHES: &[&str] = &["none", "device"];
/// What may become of records that cannot be used.
pub const ON_CORRUPT: &[&str] = &["fail", "skip"];
/// Ways of gradients from a device to other ranks'.
pub const PATHS: &[&str] = &["auto", "cuda-aware", "staged", "nccl"];
/// Gradient codecs of this build.
pub const CODECS: &[&str] = &codec::NAMES;

/// Every key, in the order in which a recipe is written.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    required("model", Kind::Text, "network, by its name in the catalogue"),
    required("data", Kind::Text, "data set: a folder with dataset.json, relative to the current directory"),
    required("epochs", Kind::Count, "passes over the training split"),
    key("seed", Kind::Count, "root of every random draw (1)"),
    required("batch", Kind::Count, "images a step, over all ranks"),
    key("workers", Kind::Count, "logical shares of each batch, >= ranks; a silent recipe takes the ranks of its first start"),
    key("shuffle", Kind::Text, "order of the samples: \"full\", or \"window(k)\" = each worker mixes k shards at a time (\"full\")"),
    key("precision", Kind::Choice(PRECISIONS), "number format of the arithmetic; \"f16\" needs a GPU, \"bf16\" one or a CPU with AVX512-BF16 (\"f32\")"),
    key("tf32", Kind::Switch, "GPU, f32: products may round their factors to tf32, 11 bits (false)"),
    key("deterministic", Kind::Switch, "GPU: only algorithms that give the same bits again; codecs of whole numbers imply it (false)"),
    key("label_smoothing", Kind::Number, "share of the target spread evenly over all classes, in [0, 1) (0)"),
    key("sync", Kind::Sync, "how ranks keep one model: \"allreduce\", \"local(H)\", \"easgd(tau, alpha)\" (\"allreduce\")"),
    key("sync_bn", Kind::Switch, "batch norm over the whole batch, not each worker's share; needs workers = ranks (false)"),
    key("zero_init_residual", Kind::Switch, "the last norm of each residual branch starts with scale 0 (false)"),
    key("eval_split", Kind::Text, "split scored after each epoch (\"test\", else \"validation\")"),
    required("optimizer.kind", Kind::Choice(OPTIMIZERS), "update rule"),
    key("optimizer.momentum", Kind::Number, "sgd, rmsprop, lars: momentum, in [0, 1) (0; lars 0.9)"),
    key("optimizer.nesterov", Kind::Switch, "sgd: Nesterov's form of momentum (false)"),
    key("optimizer.beta1", Kind::Number, "adam, adamw: decay of the mean gradient, in [0, 1) (0.9)"),
    key("optimizer.beta2", Kind::Number, "adam, adamw: decay of the mean square, in [0, 1) (0.999)"),
    key("optimizer.form", Kind::Choice(FORMS), "rmsprop: whose formula, PyTorch's or TensorFlow 1's (\"torch\")"),
    key("optimizer.alpha", Kind::Number, "rmsprop: decay of the mean square, in [0, 1) (0.99; tf 0.9)"),
    key("optimizer.eps", Kind::Number, "adam, adamw, rmsprop: keeps the denominator from 0 (1e-8; rmsprop's tf 1e-10)"),
    key("optimizer.centered", Kind::Switch, "rmsprop: divide by the deviation instead of the root mean square (false)"),
    key("optimizer.eta", Kind::Number, "lars: trust coefficient (0.001)"),
    key("optimizer.larc", Kind::Switch, "lars: the tensor's own rate is at most the learning rate (false)"),
    key("optimizer.no_adapt", Kind::Texts, "lars: parameters that keep the plain rate, as patterns (all of one dimension)"),
    key("optimizer.weight_decay", Kind::Number, "L2 coefficient: gradient += weight_decay * weight; adamw: decoupled (0)"),
    key("optimizer.no_decay", Kind::Texts, "parameters without weight decay, as patterns: \"*.bias\" ([]; lars: all of one dimension)"),
    key("optimizer.clip_norm", Kind::Number, "largest norm of all gradients together (no limit)"),
    key("optimizer.clip_value", Kind::Number, "largest magnitude of an element of a gradient (no limit)"),
    required("schedule.kind", Kind::Choice(SCHEDULES), "how the learning rate falls after the warm-up"),
    required("schedule.base_lr", Kind::Number, "learning rate for reference_batch images a step"),
    key("schedule.reference_batch", Kind::Count, "scales the learning rate by batch / reference_batch (absent: no scaling)"),
    key("schedule.warmup_epochs", Kind::Number, "epochs of linear warm-up, step by step (0)"),
    key("schedule.warmup_from", Kind::WordOrNumber("base"), "start of the warm-up: a rate, or \"base\" = base_lr (\"base\" if the target is higher, else 0)"),
    key("schedule.milestones", Kind::Numbers, "step: epochs, counted from 0, at which the rate is multiplied by gamma"),
    key("schedule.gamma", Kind::Number, "step, exponential: factor of the decay (0.1)"),
    key("schedule.end_lr", Kind::Number, "cosine, polynomial: the last rate, scaled like base_lr (0)"),
    key("schedule.power", Kind::Number, "polynomial: exponent (1)"),
    key("schedule.decay_epochs", Kind::Number, "exponential: epochs that one factor gamma takes (1)"),
    key("schedule.staircase", Kind::Switch, "exponential: fall in steps of decay_epochs instead of smoothly (false)"),
    key("ema.decay", Kind::Number, "moving average of the weights: decay min(this, (1 + t) / (10 + t)) at step t (no average)"),
    key("augment.train", Kind::Texts, "transforms of training images, in order ([])"),
    key("augment.eval", Kind::Texts, "transforms of evaluated images, in order ([])"),
    key("reduce.codec", Kind::Choice(CODECS), "how gradients travel between ranks (\"float\")"),
    key("reduce.bucket_mb", Kind::Number, "size of one allreduce in MB of gradients (4)"),
    key("reduce.path", Kind::Choice(PATHS), "GPU: the gradients' way to the other ranks: \"cuda-aware\" MPI, \"staged\" through the host, \"nccl\" (\"auto\")"),
    key("reduce.overlap", Kind::AutoSwitch, "reduce while backward still runs (\"auto\": where a core is spare)"),
    key("reduce.error_feedback", Kind::Switch, "bf16, ternary: add what was cut off to the next step's gradient (false)"),
    key("reduce.min_elements", Kind::Count, "int8, ternary: smaller tensors go as exact (432)"),
    key("reduce.logits", Kind::Switch, "int8, ternary: round the last layer's gradients too (false)"),
    key("reduce.exempt", Kind::Texts, "int8, ternary: parameters that go as exact, as patterns: \"conv1.*\" ([])"),
    key("reduce.clip", Kind::Number, "ternary: deviations at which a gradient is clipped, 0: never (2.5)"),
    key("loader.threads", Kind::Count, "loader threads a rank (by the number of cores)"),
    key("loader.slots", Kind::Count, "batches in flight a rank (0: threads + 2)"),
    key("loader.io", Kind::Choice(IOS), "how records are read (\"auto\": mmap on local disks, long reads behind a network)"),
    key("loader.buffer_mb", Kind::Number, "memory in MB for shards that are read whole (256)"),
    key("loader.cache", Kind::Choice(CACHES), "GPU: \"device\" keeps all training images, as bytes, on the card, which crops and flips them (\"none\")"),
    key("loader.on_corrupt", Kind::Choice(ON_CORRUPT), "training records that cannot be used end the run, or are left out and counted (\"fail\")"),
    key("log.every", Kind::Count, "steps between step lines in metrics.jsonl (1)"),
    key("checkpoint.every", Kind::Text, "what may pass between two: a time, \"500 steps\" or \"2 epochs\" (\"10m\")"),
    key("checkpoint.keep", Kind::Count, "files kept under checkpoints/, the newest; and the best (3)"),
];

/// The key of this path.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Whether this is the name of a section such as `optimizer`.
pub fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.path.split_once('.').is_some_and(|(s, _)| s == name))
}

/// The table as text, one key a line, for `--help`.
pub fn table() -> String {
    let width = KEYS.iter().map(|key| key.path.len()).max().unwrap_or(0);
    KEYS.iter().map(|key| format!("  {:width$}  {}\n", key.path, key.doc)).collect()
}

impl Kind {
    /// What the key takes, in words, for an error message.
    pub fn expected(&self) -> String {
        match self {
            Kind::Text => "a string".into(),
            Kind::Choice(words) => format!("one of {}", quoted(words)),
            Kind::Sync => sync::FORMS.into(),
            Kind::Count => "an integer >= 0".into(),
            Kind::Number => "a finite number".into(),
            Kind::Switch => "true or false".into(),
            Kind::AutoSwitch => "true, false or \"auto\"".into(),
            Kind::WordOrNumber(word) => format!("a finite number or \"{word}\""),
            Kind::Texts => "a list of strings, as [\"a\", \"b\"]".into(),
            Kind::Numbers => "a list of numbers, as [82, 123]".into(),
        }
    }

    /// Whether a TOML value has this kind. A [`Kind::Choice`] takes any string here: which words this build
    /// has is a question of its own, with an answer of its own.
    pub fn accepts(&self, value: &toml::Value) -> bool {
        let number = |value: &toml::Value| value.is_integer() || value.as_float().is_some_and(f64::is_finite);
        match self {
            Kind::Text | Kind::Choice(_) | Kind::Sync => value.is_str(),
            Kind::Count => value.as_integer().is_some_and(|n| n >= 0),
            Kind::Number => number(value),
            Kind::Switch => value.is_bool(),
            Kind::AutoSwitch => value.is_bool() || value.as_str() == Some("auto"),
            Kind::WordOrNumber(word) => number(value) || value.as_str() == Some(word),
            Kind::Texts => value.as_array().is_some_and(|l| l.iter().all(|v| v.is_str())),
            Kind::Numbers => value.as_array().is_some_and(|l| l.iter().all(number)),
        }
    }
}

/// `"a", "b"`.
pub(super) fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    words.join(", ")
}

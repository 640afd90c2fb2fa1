//! The sections `[loss]`, `[mix]` and `[distill]`, which define what training minimises.

use std::str::FromStr;

use loaders::MixSettings;
use schema::{KeyType, KeyValue, Range, section, words};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::{KeyFault, refuse_given};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    CrossEntropy,
    /// Binary cross-entropy of each class.
    Bce,
    /// Softmax cross-entropy times (1 - p)^gamma, where p is the predicted probability of the true class.
    Focal,
    /// Binary cross-entropy of each class times (1 - p)^gamma. p is the predicted probability of the true answer: that
    /// the image has the class, or that it does not.
    SigmoidFocal,
    /// Mean squared error of numbers.
    Mse,
    /// Mean absolute error of numbers.
    L1,
    /// Squared error of numbers up to `delta`, and linear above.
    Huber,
}

words! { LossKind { CrossEntropy = "cross_entropy", Bce = "bce", Focal = "focal", SigmoidFocal = "sigmoid_focal",
Mse = "mse", L1 = "l1", Huber = "huber" } }

impl LossKind {
    /// Returns true if the loss compares numbers, not classes.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Mse | Self::L1 | Self::Huber)
    }
}

/// The value of `loss.over_classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverClasses {
    Mean,
    Sum,
}

words! { OverClasses { Mean = "mean", Sum = "sum" } }

/// Keys that only some kinds have, with these kinds.
const OF_KINDS: [(&str, &[LossKind]); 6] = [
    ("over_classes", &[LossKind::Bce, LossKind::SigmoidFocal]),
    ("threshold", &[LossKind::Bce, LossKind::SigmoidFocal]),
    ("gamma", &[LossKind::Focal, LossKind::SigmoidFocal]),
    ("alpha", &[LossKind::SigmoidFocal]),
    ("delta", &[LossKind::Huber]),
    ("class_weights", &[LossKind::CrossEntropy, LossKind::Bce, LossKind::Focal, LossKind::SigmoidFocal]),
];

section! {
    /// The loss that training minimises, by default the softmax cross-entropy. Evaluations always use the softmax
    /// cross-entropy, or for numbers the loss of the training. [numbers.md](numbers.md#losses) has the formulas.
    pub struct LossSpec {
        /// "cross_entropy": softmax cross-entropy. "bce": binary cross-entropy of each class. "focal": softmax
        /// cross-entropy times (1 - p)^gamma. "sigmoid_focal": the same for bce, as in torchvision. Images that may
        /// have several labels need "bce" or "sigmoid_focal". Images with numbers instead of classes need "mse" (mean
        /// squared error), "l1" (mean absolute error) or "huber" (squared up to delta, linear above).
        optional kind: LossKind = LossKind::CrossEntropy;
        /// How the losses of an image's classes are combined.
        optional over_classes: OverClasses = OverClasses::Mean;
        /// Mixed and smoothed targets above this value become 1, all others 0.
        absent threshold: f64 = "targets are not changed", in Range::Fraction;
        /// Focusing exponent. The larger it is, the less correctly classified images count.
        optional gamma: f64 = 2.0, in Range::NonNegativeF32;
        /// Weight of the true classes. All other classes have the weight 1 - alpha.
        optional alpha: f64 = 0.25, in Range::Probability;
        /// The error up to which the loss is squared, in standard deviations of the target.
        optional delta: f64 = 1.0, in Range::PositiveF32;
        /// Weights of the classes. "auto": 1 / n for a class with n training images. "effective(beta)", for example
        /// "effective(0.999)": (1 - beta) / (1 - beta^n). The sum of a step's losses is divided by the sum of its
        /// images' weights.
        absent class_weights: ClassWeights = "all classes have the same weight";
    }
}

impl LossSpec {
    /// Returns the kinds that have this key. Empty for a key of all kinds.
    pub(super) fn kinds_with(key: &str) -> Vec<&'static str> {
        let own = OF_KINDS.iter().filter(|(name, _)| *name == key);
        own.flat_map(|(_, kinds)| *kinds).map(|kind| kind.name()).collect()
    }

    /// Checks that the keys fit the kind and that the weights are valid.
    ///
    /// # Errors
    ///
    /// Returns the key and the problem.
    pub(super) fn check(&self) -> Result<(), KeyFault> {
        let given = [
            ("loss.over_classes", self.over_classes.is_some()),
            ("loss.threshold", self.threshold.is_some()),
            ("loss.gamma", self.gamma.is_some()),
            ("loss.alpha", self.alpha.is_some()),
            ("loss.delta", self.delta.is_some()),
            ("loss.class_weights", self.class_weights.is_some()),
        ];
        for (key, _) in given.into_iter().filter(|(_, given)| *given) {
            let owners = Self::kinds_with(key.trim_start_matches("loss."));
            if !owners.contains(&self.kind().name()) {
                let (owners, kind) = (owners.join("\" or \""), self.kind());
                let why = format!("belongs to kind \"{owners}\", but loss.kind = \"{kind}\"; remove this key");
                return Err((key, why));
            }
        }
        let Some(ClassWeights::Given(weights)) = &self.class_weights else { return Ok(()) };
        match weights.iter().position(|w| !(*w > 0.0 && *w <= f64::from(f32::MAX))) {
            Some(class) => Err((
                "loss.class_weights",
                format!("must be numbers > 0 in the range of f32, got {:?} for class {class}", weights[class]),
            )),
            None => Ok(()),
        }
    }
}

/// The value of `loss.class_weights`.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// 1 / n for a class with n training images.
    Auto,
    /// 1 / effective number, which is (1 - beta^n) / (1 - beta) for n training images.
    Effective(f64),
    /// One weight per class, in the order of the data set's classes.
    Given(Vec<f64>),
}

/// The possible values of `loss.class_weights`, for messages.
const FORMS: &str = "\"auto\", \"effective(beta)\" or a list of numbers, one per class";

impl FromStr for ClassWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix("effective(").and_then(|rest| rest.strip_suffix(')'));
        match (text, inner.map(|beta| beta.trim().parse::<f64>())) {
            ("auto", _) => Ok(Self::Auto),
            (_, Some(Ok(beta))) if beta > 0.0 && beta < 1.0 => Ok(Self::Effective(beta)),
            (_, Some(_)) => Err(format!("expected a beta in (0, 1), such as effective(0.999), got \"{text}\"")),
            _ => Err(format!("expected {FORMS}, got \"{text}\"")),
        }
    }
}

impl std::fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Effective(beta) => write!(f, "effective({beta})"),
            Self::Given(weights) => write!(f, "{weights:?}"),
        }
    }
}

impl KeyValue for ClassWeights {
    const TYPE: KeyType = KeyType::ParsedOrNumbers { expected: FORMS, parse: |text| text.parse::<Self>().map(drop) };
}

impl Serialize for ClassWeights {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Given(weights) => KeyValue::write(weights, out),
            words => out.collect_str(words),
        }
    }
}

impl<'de> Deserialize<'de> for ClassWeights {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Numbers(Vec<f64>),
        }
        match Form::deserialize(source)? {
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
            Form::Numbers(weights) => Ok(Self::Given(weights)),
        }
    }
}

section! {
    /// Mixes the n images in a worker's part of the batch, and their labels: image i with image n - 1 - i. All n images
    /// share one random draw per worker, epoch and step, as in timm's batch mode. The keys have timm's names.
    /// Without `mixup` and `cutmix`, nothing is mixed.
    pub struct MixSpec {
        /// Mixup: parameter of the beta distribution for the weight of an image when two images are blended. 0: no
        /// mixup.
        absent mixup: f64 = "no mixup", in Range::NonNegativeF32;
        /// CutMix: parameter of the beta distribution for the area that an image keeps when a rectangle is replaced. 0:
        /// no CutMix.
        absent cutmix: f64 = "no CutMix", in Range::NonNegativeF32;
        /// Probability of CutMix if both are set.
        optional switch: f64 = 0.5, in Range::Probability;
        /// Probability that a worker's images are mixed.
        optional prob: f64 = 1.0, in Range::Probability;
    }
}

impl MixSpec {
    /// Returns how batches are mixed, or `None` if they are not.
    pub fn settings(&self) -> Option<MixSettings> {
        let (mixup, cutmix) = (self.mixup.unwrap_or(0.0), self.cutmix.unwrap_or(0.0));
        let (switch, prob) = (self.switch(), self.prob());
        (mixup > 0.0 || cutmix > 0.0).then_some(MixSettings { mixup, cutmix, switch, prob })
    }

    /// Describes the mixing for the log.
    pub fn describe(&self) -> Option<String> {
        let MixSettings { mixup, cutmix, switch, prob } = self.settings()?;
        let how = match (mixup > 0.0, cutmix > 0.0) {
            (true, true) => format!("mixup {mixup} or CutMix {cutmix} (with probability {switch})"),
            (true, false) => format!("mixup {mixup}"),
            _ => format!("CutMix {cutmix}"),
        };
        let often = if prob < 1.0 { format!(", with probability {prob}") } else { String::new() };
        Some(format!("{how}, within each worker's part of the batch{often}"))
    }

    /// Rejects keys that have no effect, and a batch so small that a worker may get a single image.
    ///
    /// # Errors
    ///
    /// Returns the key and the problem.
    pub(super) fn check(&self, batch: usize, workers: Option<usize>) -> Result<(), KeyFault> {
        let Some(MixSettings { mixup, cutmix, .. }) = self.settings() else {
            let idle = [("mix.switch", self.switch.is_some()), ("mix.prob", self.prob.is_some())];
            return refuse_given(&idle, "mix.mixup or mix.cutmix above 0", "one of them");
        };
        if mixup == 0.0 || cutmix == 0.0 {
            let switch = ("mix.switch", self.switch.is_some());
            refuse_given(&[switch], "both mix.mixup and mix.cutmix above 0", "both")?;
        }
        let Some(workers) = workers.filter(|workers| batch / workers < 2) else { return Ok(()) };
        let key = if mixup > 0.0 { "mix.mixup" } else { "mix.cutmix" };
        let least = 2 * workers;
        Err((
            key,
            format!(
                "images are mixed only with images of the same worker, but batch = {batch} gives some of the {workers} workers only one \
                 image; use a batch of at least {least}, or fewer workers"
            ),
        ))
    }
}

section! {
    /// Distillation: training with the scores that a trained network has for the same images, in addition to their
    /// labels. [numbers.md](numbers.md#distillation) has the formula.
    pub struct DistillSpec {
        /// The trained network: the folder of a run, model.h5 or a checkpoint. Its classes must be those of the data
        /// set, and its image size must be that of the transforms. The path is relative to the current directory.
        absent teacher: String = "no teacher";
        /// Weight of the divergence from the teacher in the loss. The labels have the remaining weight.
        optional share: f64 = 0.5, in Range::Probability;
        /// Divides the scores of both networks before their softmax.
        optional temperature: f64 = 4.0, in Range::PositiveF32;
    }
}

impl DistillSpec {
    /// Rejects keys without a teacher.
    ///
    /// # Errors
    ///
    /// Returns the key and the problem.
    pub(super) fn check(&self) -> Result<(), KeyFault> {
        if self.teacher.is_some() {
            return Ok(());
        }
        let idle = [("distill.share", self.share.is_some()), ("distill.temperature", self.temperature.is_some())];
        refuse_given(&idle, "distill.teacher, a trained network", "distill.teacher")
    }
}

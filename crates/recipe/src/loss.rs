//! `[loss]`: what training minimises.

use schema::{Range, section, words};

use super::class_weights::ClassWeights;

/// `loss.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// Cross-entropy of the softmax.
    CrossEntropy,
    /// Binary cross-entropy of each class.
    Bce,
    /// Cross-entropy of the softmax times (1 - p)^gamma.
    Focal,
    /// Binary cross-entropy of each class times (1 - p)^gamma, p being that of the truth.
    SigmoidFocal,
}

words! { LossKind { CrossEntropy = "cross_entropy", Bce = "bce", Focal = "focal", SigmoidFocal = "sigmoid_focal" } }

/// `loss.over_classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverClasses {
    /// The mean of a sample's classes.
    Mean,
    /// Their sum.
    Sum,
}

words! { OverClasses { Mean = "mean", Sum = "sum" } }

/// The keys that only some kinds have, with these.
const OF_KINDS: [(&str, &[LossKind]); 4] = [
    ("over_classes", &[LossKind::Bce, LossKind::SigmoidFocal]),
    ("threshold", &[LossKind::Bce, LossKind::SigmoidFocal]),
    ("gamma", &[LossKind::Focal, LossKind::SigmoidFocal]),
    ("alpha", &[LossKind::SigmoidFocal]),
];

section! {
    /// What training minimises. Without these keys it is the cross-entropy of the softmax, as the loss of scores always is.
    /// [numbers.md](numbers.md#losses) has the formulas.
    pub struct LossSpec {
        /// "cross_entropy" of the softmax; "bce": binary cross-entropy of each class by itself; "focal": cross-entropy times
        /// (1 - p)^gamma; "sigmoid_focal": the same of bce, as torchvision's. Images that may have several labels need "bce" or
        /// "sigmoid_focal".
        optional kind: LossKind = LossKind::CrossEntropy;
        /// What becomes of the losses of an image's classes.
        optional over_classes: OverClasses = OverClasses::Mean;
        /// Mixed and smoothed targets above it become 1, all others 0.
        absent threshold: f64 = "targets stay as they are", in Range::Fraction;
        /// Exponent by which images that are right already count less.
        optional gamma: f64 = 2.0, in Range::NonNegativeF32;
        /// Weight of classes that are true; 1 less it is that of all others.
        optional alpha: f64 = 0.25, in Range::Probability;
        /// Weights of the classes. "auto": by 1 / n of n training images of a class; "effective(0.999)": by (1 - beta) / (1 - beta^n). The
        /// sum of a step's losses is divided by the sum of its images' weights.
        absent class_weights: ClassWeights = "all classes count alike";
    }
}

impl LossSpec {
    /// The kinds that alone have this key; none for a key of all kinds.
    pub(super) fn kinds_with(key: &str) -> Vec<&'static str> {
        let own = OF_KINDS.iter().filter(|(name, _)| *name == key);
        own.flat_map(|(_, kinds)| *kinds).map(|kind| kind.name()).collect()
    }

    /// Refuses keys that have no meaning for the kind, and weights that are none.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let given = [
            ("loss.over_classes", self.over_classes.is_some()),
            ("loss.threshold", self.threshold.is_some()),
            ("loss.gamma", self.gamma.is_some()),
            ("loss.alpha", self.alpha.is_some()),
        ];
        for (key, _) in given.into_iter().filter(|(_, given)| *given) {
            let owners = Self::kinds_with(key.trim_start_matches("loss."));
            if !owners.contains(&self.kind().name()) {
                let owners: Vec<String> = owners.iter().map(|kind| format!("\"{kind}\"")).collect();
                return Err((
                    key,
                    format!("belongs to kind {}, but loss.kind = \"{}\"", owners.join(" or "), self.kind()),
                ));
            }
        }
        match &self.class_weights {
            Some(ClassWeights::Given(weights)) if weights.iter().any(|w| !(*w > 0.0 && *w <= f64::from(f32::MAX))) => {
                Err(("loss.class_weights", format!("must be numbers > 0 that f32 holds, got {weights:?}")))
            }
            _ => Ok(()),
        }
    }
}

//! The loss: its arguments, and its sums over a batch.

use super::error::Error;
use super::memory::DeviceMemory;

/// Arguments of the softmax cross-entropy.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// Class of each row.
    pub labels: &'a [u32],
    /// Weight spread evenly over all classes.
    pub smoothing: f32,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
    /// Another factor of the gradient, where several losses are added up.
    pub weight: f32,
}

/// Sums over the rows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSums {
    /// Sum of the losses.
    pub loss: f64,
    /// Rows whose class has the highest score.
    pub top1: u64,
    /// Rows whose class is among the five highest scores.
    pub top5: u64,
    /// Rows.
    pub count: u64,
}

// Losses of scores against targets over all classes: what they compare, their arguments, and what a host computes alike for all rows.
//
// With z a row's scores, t its targets, K classes, and log p the logarithm of the softmax of z:
// - softmax: the sum over c of -t (1 - p)^gamma log p: cross-entropy, and with gamma > 0 the focal loss;
// - sigmoid, each class by itself: p = 1 / (1 + exp(-z)), e = -t log p - (1 - t) log(1 - p), r = p t + (1 - p) (1 - t), and the sum over c
//   of a (1 - r)^gamma e with a = alpha t + (1 - alpha) (1 - t), or 1 without alpha: binary cross-entropy, and with gamma > 0 the focal
//   loss of Lin et al. 2017 (arXiv 1708.02002);
// - with a teacher of share s and temperature T, (1 - s) times the loss, and s T^2 times the divergence of Kullback and Leibler from the
//   softmax of the teacher's scores / T to that of z / T (Hinton et al. 2015, arXiv 1503.02531).

/// What a loss compares, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Softmax or sigmoid.
    pub form: LossForm,
    /// Exponent by which classes that are right already count less; 0: cross-entropy.
    pub gamma: f32,
    /// How much a teacher says, if there is one.
    pub teacher: Option<Teaching>,
}

/// How scores become probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossForm {
    /// All classes together.
    Softmax,
    /// Each class by itself.
    Sigmoid {
        /// Weight of what is true; 1 less it that of what is not. None: both count alike.
        alpha: Option<f32>,
        /// Whether a row's loss is the mean over its classes instead of their sum.
        mean: bool,
    },
}

/// What a teacher's scores count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Teaching {
    /// Share of the loss.
    pub share: f32,
    /// By which both networks' scores are divided.
    pub temperature: f32,
}

/// The targets of a batch.
#[derive(Clone, Copy, Debug)]
pub struct SoftTargets<'a> {
    /// The class of each row that counts as a hit; or [`SoftTargets::ANY`].
    pub labels: &'a [u32],
    /// (rows, 1 + classes): a row's weight, then its targets. The weight multiplies the loss of the sigmoid form and the teacher's part;
    /// for the softmax form, targets are multiplied by the weights of their classes instead.
    pub table: &'a [f32],
}

/// Arguments of a loss against targets.
#[derive(Clone, Copy, Debug)]
pub struct SoftLoss<'a> {
    /// What the scores should be.
    pub targets: SoftTargets<'a>,
    /// What is compared, and how.
    pub objective: Objective,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
    /// Another factor of the gradient, where several losses are added up.
    pub weight: f32,
}

/// How many classes have a higher score than the best of `own`, of equal scores those of smaller index; none where no class of `own` has a
/// score that is a number.
pub fn place_of_best(own: impl Iterator<Item = usize>, scores: &[f32]) -> Option<usize> {
    let higher = |a: usize, b: usize| scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    let known = own.filter(|class| scores.get(*class).is_some_and(|score| !score.is_nan()));
    let best = known.reduce(|best, class| if higher(class, best) { class } else { best })?;
    Some((0..scores.len()).filter(|class| higher(*class, best)).count())
}

impl SoftTargets<'_> {
    /// In place of a row's class: each class whose target is above one half counts as a hit; if there is none, the row has no hit.
    pub const ANY: u32 = u32::MAX;

    /// Whether this can be the label of a row of so many classes.
    fn fits(label: u32, classes: usize) -> bool {
        (label as usize) < classes || label == Self::ANY
    }

    /// How many classes have a higher score than the best one that counts as a hit in row `row`, of equal scores those of smaller index;
    /// all, if none counts or its score is NaN.
    pub fn place(&self, row: usize, scores: &[f32]) -> usize {
        let (_, targets) = self.row(row, scores.len());
        let place = match self.labels[row] {
            Self::ANY => place_of_best((0..scores.len()).filter(|class| targets[*class] > 0.5), scores),
            label => place_of_best(std::iter::once(label as usize), scores),
        };
        place.unwrap_or(scores.len())
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// A row's weight, then its targets.
    pub fn row(&self, row: usize, classes: usize) -> (f32, &[f32]) {
        let all = &self.table[row * (1 + classes)..][..1 + classes];
        (all[0], &all[1..])
    }

    /// Fails unless labels are classes and the table has all rows.
    pub fn check(&self, classes: usize) -> Result<(), Error> {
        let size = |expected, got| Err(Error::Size { op: "the loss".into(), expected, got });
        if let Some(wrong) = self.labels.iter().find(|label| !Self::fits(**label, classes)) {
            return size(format!("labels below {classes}"), wrong.to_string());
        }
        let (need, got) = (self.rows() * (1 + classes), self.table.len());
        if got != need {
            return size(format!("{need} targets and weights for {} rows", self.rows()), got.to_string());
        }
        Ok(())
    }
}

impl Objective {
    /// Cross-entropy with the softmax.
    pub const CROSS_ENTROPY: Self = Self { form: LossForm::Softmax, gamma: 0.0, teacher: None };

    /// Factor of a row's loss and gradient, without the teacher's part: its weight and the mean over the classes, where it has them.
    pub fn factor(&self, weight: f64, classes: usize) -> f64 {
        let own = match self.form {
            LossForm::Softmax => 1.0,
            LossForm::Sigmoid { mean: true, .. } => weight / classes as f64,
            LossForm::Sigmoid { mean: false, .. } => weight,
        };
        self.teacher.map_or(own, |teacher| own * (1.0 - f64::from(teacher.share)))
    }
}

// The scale of the losses, for activations of a type with a short range (f16).

/// A device that scales its losses.
pub trait LossScaling<D: DeviceMemory> {
    /// Takes the scale out of all gradients of a step, before its update; where one is Inf or NaN, the device skips the update and
    /// lowers the scale.
    fn inspect(&self, gradients: &[D::Buf]) -> Result<(), Error>;

    /// The scale, once everything enqueued is done.
    fn scale(&self) -> Result<LossScale, Error>;

    /// Continues with this scale.
    fn set_scale(&self, scale: LossScale) -> Result<(), Error>;
}

/// The factor of the losses, and its history.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossScale {
    /// The factor.
    pub scale: f32,
    /// Steps without Inf or NaN since it last grew.
    pub good: u32,
    /// Steps in a row, up to the last one, that were skipped because a gradient was Inf or NaN.
    pub bad: u32,
    /// Steps that were skipped in all.
    pub lost: u32,
}

impl LossScale {
    /// Below this, halving the scale has not helped: the values themselves are not finite.
    pub const LEAST: f32 = 1.0 / 1024.0;
}

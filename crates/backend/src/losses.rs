//! Losses: their arguments, and their sums over a batch.

use base::run_state::LossScale;

use super::error::Error;
use super::memory::DeviceMemory;

/// Arguments of the softmax cross-entropy.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    pub labels: &'a [u32],
    /// Label smoothing: weight that is spread evenly over all classes.
    pub smoothing: f32,
    /// Factor on the gradient: 1 / (actual number of samples in the whole step).
    pub scale: f32,
    /// The weight of this loss if several losses are added. It multiplies the gradient, like `scale`.
    pub weight: f32,
}

/// Sums over the rows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSums {
    pub loss: f64,
    /// Rows in which the correct class has the highest score.
    pub top1: u64,
    /// Rows in which the correct class is among the five highest scores.
    pub top5: u64,
    pub count: u64,
}

// Losses with targets for all classes: their definition, their arguments, and computations that are the same for all
// devices.
//
// With z a row's scores, t its targets, K classes, and log p the logarithm of the softmax of z:
// - softmax: the sum over c of -t (1 - p)^gamma log p. This is cross-entropy, and with gamma > 0 the focal loss.
// - sigmoid, separately for each class: p = 1 / (1 + exp(-z)), e = -t log p - (1 - t) log(1 - p),
//   r = p t + (1 - p) (1 - t), and the sum over c of a (1 - r)^gamma e with a = alpha t + (1 - alpha) (1 - t), or a = 1
//   without alpha. This is binary cross-entropy, and with gamma > 0 the focal loss of Lin et al. 2017 (arXiv
//   1708.02002).
// - distance, for numbers: the mean over the outputs of f(z - t). The squared distance is f(d) = d^2, the absolute
//   distance |d|. Huber's is d^2 / 2 up to |d| = delta, and delta (|d| - delta / 2) above. These are PyTorch's MSELoss,
//   L1Loss and HuberLoss.
// - with a teacher of share s and temperature T: (1 - s) times the loss, plus s T^2 times the Kullback-Leibler
//   divergence from the softmax of the teacher's scores / T to the softmax of z / T (Hinton et al. 2015, arXiv
//   1503.02531).

/// A loss with targets for all classes. The comment above has the formulas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    pub form: LossForm,
    /// Exponent that reduces the weight of classes that are already correct. It is 0 for plain cross-entropy, and for
    /// distances, which have no probabilities.
    pub gamma: f32,
    /// How a teacher's scores enter the loss, if there is a teacher.
    pub teacher: Option<Teaching>,
}

/// The form of a loss: how scores become probabilities, or that they are compared with their targets as numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossForm {
    /// A distribution over all classes.
    Softmax,
    /// A separate probability for each class.
    Sigmoid {
        /// Weight of classes that are present. Other classes have weight 1 - alpha. `None` means that both have weight
        /// 1.
        alpha: Option<f32>,
        /// True if a row's loss is the mean over its classes, false if it is their sum.
        mean: bool,
    },
    /// The outputs are numbers that are compared with their targets (regression).
    Distance(Distance),
}

/// The distance between a prediction and its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    Squared,
    Absolute,
    /// Squared up to `delta`, and linear above.
    Huber {
        delta: f32,
    },
}

impl Distance {
    /// Returns the loss of a prediction that differs from its target by `d`, and its derivative.
    pub fn loss(self, d: f64) -> [f64; 2] {
        let sign = if d == 0.0 { 0.0 } else { d.signum() };
        match self {
            Self::Squared => [d * d, 2.0 * d],
            Self::Absolute => [d.abs(), sign],
            Self::Huber { delta } => match f64::from(delta) {
                delta if d.abs() <= delta => [0.5 * d * d, d],
                delta => [delta * (d.abs() - 0.5 * delta), delta * sign],
            },
        }
    }
}

/// How a teacher's scores enter the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Teaching {
    /// Weight of the teacher's scores in the loss. The labels have weight 1 - `share`.
    pub share: f32,
    /// Divisor of the scores of both the teacher and the trained network.
    pub temperature: f32,
}

/// The targets of a batch for all classes.
#[derive(Clone, Copy, Debug)]
pub struct SoftTargets<'a> {
    /// For each row, the class that counts as correct, or [`SoftTargets::ANY`].
    pub labels: &'a [u32],
    /// (rows, 1 + classes): a row's weight, then its targets. The weight multiplies the sigmoid loss and the teacher's
    /// part. For the softmax loss, the targets are already multiplied by the weights of their classes.
    pub table: &'a [f32],
}

/// Arguments of a loss with soft targets.
#[derive(Clone, Copy, Debug)]
pub struct SoftLoss<'a> {
    pub targets: SoftTargets<'a>,
    pub objective: Objective,
    /// Factor on the gradient: 1 / (actual number of samples in the whole step).
    pub scale: f32,
    /// The weight of this loss if several losses are added. It multiplies the gradient, like `scale`.
    pub weight: f32,
}

/// Orders all classes by score and returns the position of the best class in `own`. This is the number of classes with
/// a higher score, or with the same score and a smaller index. Returns `None` if no class in `own` has a score that is
/// a number.
pub fn place_of_best(own: impl Iterator<Item = usize>, scores: &[f32]) -> Option<usize> {
    let higher = |a: usize, b: usize| scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    let known = own.filter(|class| scores.get(*class).is_some_and(|score| !score.is_nan()));
    let best = known.reduce(|best, class| if higher(class, best) { class } else { best })?;
    let top = scores[best];
    Some(scores.iter().enumerate().filter(|&(class, score)| *score > top || (*score == top && class < best)).count())
}

impl LossSums {
    /// Counts a row whose best correct class has this position in the order of scores, see [`place_of_best`].
    pub(crate) fn count_place(&mut self, place: Option<usize>) {
        self.top1 += u64::from(place.is_some_and(|place| place < 1));
        self.top5 += u64::from(place.is_some_and(|place| place < 5));
    }
}

impl CrossEntropy<'_> {
    /// Returns a row's label and the label's position in the order of `scores`, see [`place_of_best`]. Returns an error
    /// if there is no such class.
    pub(crate) fn label_and_place(&self, row: usize, scores: &[f32]) -> Result<(usize, Option<usize>), Error> {
        let label = self.labels[row] as usize;
        if label >= scores.len() {
            let (expected, got) = (format!("labels below {}", scores.len()), label.to_string());
            return Err(Error::Size { op: "cross-entropy".into(), expected, got });
        }
        Ok((label, place_of_best(std::iter::once(label), scores)))
    }
}

impl SoftTargets<'_> {
    /// Label of a row for which each class with a target above one half counts as correct. If there is no such class,
    /// no prediction for the row is correct.
    pub const ANY: u32 = u32::MAX;

    /// Returns true if this is a valid label of a row with `classes` classes.
    fn fits(label: u32, classes: usize) -> bool {
        (label as usize) < classes || label == Self::ANY
    }

    /// Returns the position of the best class that counts as correct in row `row`, see [`place_of_best`]. Returns
    /// `None` also if the targets are numbers.
    pub(crate) fn place(&self, form: LossForm, row: usize, scores: &[f32]) -> Option<usize> {
        if let LossForm::Distance(_) = form {
            return None;
        }
        let (_, targets) = self.row(row, scores.len());
        match self.labels[row] {
            Self::ANY => place_of_best((0..scores.len()).filter(|class| targets[*class] > 0.5), scores),
            label => place_of_best(std::iter::once(label as usize), scores),
        }
    }

    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// Returns a row's weight and its targets.
    pub fn row(&self, row: usize, classes: usize) -> (f32, &[f32]) {
        let all = &self.table[row * (1 + classes)..][..1 + classes];
        (all[0], &all[1..])
    }

    /// Returns an error unless all labels are valid and the table has all rows.
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

    /// Returns the factor on a row's loss and gradient, without the teacher's part. It includes the row's weight and
    /// the mean over classes, if they apply.
    pub fn factor(&self, weight: f64, classes: usize) -> f64 {
        let own = match self.form {
            LossForm::Softmax => 1.0,
            LossForm::Sigmoid { mean: true, .. } | LossForm::Distance(_) => weight / classes as f64,
            LossForm::Sigmoid { mean: false, .. } => weight,
        };
        self.teacher.map_or(own, |teacher| own * (1.0 - f64::from(teacher.share)))
    }
}

// Loss scaling, for activation types with a small range (f16).

/// A device that scales its losses.
pub trait LossScaling<D: DeviceMemory> {
    /// Divides the gradients that a step uses by the scale, before the update. If one is Inf or NaN, the device skips
    /// the update and reduces the scale.
    fn inspect(&self, gradients: &[&D::Buf]) -> Result<(), Error>;

    /// Counts an update. Must be called once for each update that inspects its gradients, also if the device replays it.
    fn count_update(&self);

    /// Waits for everything enqueued and returns the scale.
    fn scale(&self) -> Result<LossScale, Error>;

    /// Returns the scale before the last `updates` counted updates, which may still be enqueued. The device must have
    /// finished all earlier updates. `updates` may be at most the number of passes with unread sums.
    fn scale_before(&self, updates: u64) -> LossScale;

    /// Replaces the scale and its counters, for example by those of a checkpoint.
    fn set_scale(&self, scale: LossScale) -> Result<(), Error>;
}

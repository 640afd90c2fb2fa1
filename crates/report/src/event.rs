//! The events of a run as written to metrics.jsonl. Each event is a struct, and its field names are the JSON keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::predictions::TargetScore;

/// An event of a run. In JSON, the key `event` has the name of the variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    Start(Start),
    /// One optimizer step is done.
    Step(Step),
    Epoch(Epoch),
    /// The time of the gradient exchange was measured.
    Exchange(Exchange),
    /// Statistics of the layers' parameters and gradients were computed.
    Layers(Layers),
    Eval(Eval),
    /// A checkpoint was written, or writing failed.
    Checkpoint(Checkpoint),
    End(End),
}

/// The beginning of a run: its length, its data and its environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Start {
    /// Optimizer steps already done: 0, or the step of the checkpoint.
    pub step: u64,
    /// Number of epochs already done.
    pub epoch: u32,
    /// Number of epochs in the whole run.
    pub epochs: u32,
    pub steps_per_epoch: u64,
    /// The step at which this run ends.
    pub last_step: u64,
    /// Steps of the whole run, if the recipe gives its length in steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    pub model: String,
    /// Number of trainable parameters.
    pub parameters: u64,
    /// Number of images of the training split.
    pub images: u64,
    /// Images per step over all ranks.
    pub batch: usize,
    /// Number of workers among which each batch is divided.
    pub workers: usize,
    pub ranks: usize,
    /// Further facts by name: device, MPI library, threads, schedule, memory ...
    pub facts: BTreeMap<String, String>,
    /// The best score of the run before it was resumed. Omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<BestScore>,
}

/// The best score so far. It has the same keys as an `eval` event, so a reader can use it like the event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BestScore {
    pub step: u64,
    pub split: String,
    /// True if it is a score of the averaged weights (EMA). Omitted if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ema: bool,
    /// Name of the score, as in `checkpoint.best_by`.
    pub best: String,
    /// The known scores of this step by name: at least the best one.
    #[serde(flatten)]
    pub scores: BTreeMap<String, f64>,
}

/// One optimizer step. Values are over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    /// Number of optimizer steps that are done, including this one. The first step is 1.
    pub step: u64,
    /// The epoch of this step, from 0.
    pub epoch: u32,
    /// Mean loss over the images of the step.
    pub loss: f64,
    /// Fraction of correctly classified images, from 0 to 1. NaN (null in JSON) if labels are numbers.
    pub top1: f64,
    pub lr: f64,
    /// Images per second over all ranks.
    pub img_per_s: f64,
    /// Milliseconds that the slowest rank waited for its loader.
    pub data_wait_ms: f64,
    /// Milliseconds that a rank waited for other ranks in the previous step. This is the maximum over the ranks.
    pub comm_wait_ms: f64,
    /// Duration of the step in milliseconds.
    pub step_ms: f64,
    /// Minimum, median and maximum over the ranks of the time waited for the loader.
    pub data_wait_ranks: [f64; 3],
    /// Minimum, median and maximum over the ranks of the time waited for other ranks in the previous step.
    pub comm_wait_ranks: [f64; 3],
    /// Minimum, median and maximum over the ranks of the duration of the previous step.
    pub step_ranks: [f64; 3],
    /// Hash of the samples in the step, with their workers and positions. It does not depend on the number of ranks.
    pub samples: u64,
    /// Norm of the gradient of all parameters together, before clipping. Only with `optimizer.clip_norm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// Loss scale of this step on rank 0. Only with `precision = "f16"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// Number of steps before this one that were skipped because a gradient was infinite or NaN. Only with `loss_scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_steps: Option<u32>,
}

/// The end of one epoch of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Epoch {
    pub step: u64,
    /// The epoch that ended, from 0.
    pub epoch: u32,
    /// If the run ended during this epoch: the number of steps done, and the number of steps in a whole epoch. Only for
    /// printed output.
    #[serde(skip)]
    pub part: Option<(u64, u64)>,
    /// Mean training loss over the epoch's images.
    pub loss: f64,
    /// Fraction of correctly classified images. NaN if labels are numbers.
    pub top1: f64,
    /// Learning rate of the last step.
    pub lr: f64,
    /// Images per second over all ranks, without evaluation.
    pub img_per_s: f64,
    /// Duration in seconds, without evaluation.
    pub seconds: f64,
    pub loader: Loading,
}

/// Statistics of the ranks' loaders in an epoch. All values except `skipped` are from the rank that waited longest for
/// data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Loading {
    /// Number of bad samples that were skipped, over all ranks.
    pub skipped: u64,
    /// Seconds that training waited for data.
    pub data_wait_s: f64,
    /// Mean number of ready batches when a batch was taken.
    pub queue_depth: f64,
    /// Bytes of all records that were read.
    pub bytes: u64,
    /// Microseconds per image on one thread for finding, reading and checking records.
    pub read_us: f64,
    /// Microseconds per image for decoding.
    pub decode_us: f64,
    /// Microseconds per image for transforms.
    pub transform_us: f64,
    /// Microseconds per image spent waiting for a free slot.
    pub slot_wait_us: f64,
}

/// Cost of the gradient exchange on rank 0, as means over the first steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Exchange {
    pub step: u64,
    pub epoch: u32,
    pub codec: String,
    /// Number of steps that were measured.
    pub steps: u64,
    /// Bytes passed to MPI per step.
    pub bytes: u64,
    /// Bytes of the same gradients as f32.
    pub float_bytes: u64,
    /// Milliseconds per step for encoding.
    pub encode_ms: f64,
    /// Milliseconds per step inside MPI. With `float` this includes waiting for other ranks, with other codecs it does
    /// not.
    pub wire_ms: f64,
    /// Milliseconds per step for decoding.
    pub decode_ms: f64,
    /// Milliseconds per step inside MPI for the same gradients as f32, measured in the same steps.
    pub float_ms: Option<f64>,
}

/// Statistics of all parameters and their gradients, computed after the sum over all ranks and before the update.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layers {
    /// Optimizer steps done, including this one.
    pub step: u64,
    pub epoch: u32,
    /// The parameters in the order of the network.
    pub tensors: Vec<TensorSpread>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TensorSpread {
    pub name: String,
    pub elements: u64,
    /// Statistics of the parameter before the update.
    pub weight: Spread,
    /// Statistics of the gradient of the mean loss, before clipping.
    pub gradient: Spread,
    /// Share of encoded gradients that are zero. Only for codecs that can count them, and for parameters that are not
    /// exempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_codes: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Eval {
    pub step: u64,
    pub epoch: u32,
    pub split: String,
    /// Fraction of images, from 0 to 1, where the most probable class is correct. NaN if labels are numbers, like
    /// `top5`.
    pub top1: f64,
    /// Share of images with the true class among the five most probable.
    pub top5: f64,
    pub loss: f64,
    /// Number of images that were evaluated.
    pub count: u64,
    /// Mean F1 score of the classes. Only if the run selects checkpoints by it, or for multi-label data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macro_f1: Option<f64>,
    /// F1 score over all pairs of image and class. Only for multi-label data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_f1: Option<f64>,
    /// Mean of the classes' average precisions. Only if the run selects checkpoints by it, or for multi-label data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<f64>,
    /// Root mean squared error, as a mean over the targets in their units. Only if labels are numbers, like the following
    /// scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
    /// Mean absolute error, as a mean over the targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// Coefficient of determination, as a mean over the targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Scores per target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetScore>,
    /// True if these are the scores of the averaged weights (EMA). Omitted if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ema: bool,
    /// Name of the score (as in `checkpoint.best_by`) if this evaluation is the best so far. Omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    /// True if this split is scored only once, at the end of a run that watches another split. Omitted if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_end: bool,
}

/// A checkpoint that rank 0 wrote in the background, or the reason why it could not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Checkpoint {
    pub step: u64,
    pub epoch: u32,
    pub path: PathBuf,
    pub bytes: u64,
    /// Milliseconds that training waited for the snapshot.
    pub wait_ms: f64,
    /// Milliseconds for writing the file while training continued.
    pub write_ms: f64,
    /// Why the file was not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct End {
    pub step: u64,
    /// Number of optimizer steps that were done before this process started. Only for printed output.
    #[serde(skip)]
    pub before: u64,
    pub epoch: u32,
    /// Seconds since the process started.
    pub seconds: f64,
    /// Images per second over the training steps of this process.
    pub img_per_s: f64,
    pub model: PathBuf,
    /// Name, value and step of the score that selected the best checkpoint. Only for printed output.
    #[serde(skip)]
    pub best: Option<(String, f64, u64)>,
    /// CRC-32C of the parameters, of the running statistics, and of the optimizer's state with the averages, in
    /// hexadecimal and separated by dashes. Equal if two runs computed bit-identical results.
    pub digest: String,
    /// Why the run ended early because of a score: `target` or `patience`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Seconds from the first image to the evaluation that reached `stop.target`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_to_target: Option<f64>,
}

macro_rules! into_event {
    ($($kind:ident),*) => {
        $(impl From<$kind> for Event {
            fn from(event: $kind) -> Self {
                Event::$kind(event)
            }
        })*
    };
}

into_event!(Start, Step, Epoch, Exchange, Layers, Eval, Checkpoint, End);

/// Number of equally wide bins between the minimum and the maximum.
const BINS: usize = 40;

/// Statistics of a tensor. If an element is NaN or infinite, they may be NaN, which JSON represents as null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    /// Standard deviation of the population.
    pub deviation: f64,
    pub least: f64,
    pub most: f64,
    /// Fraction of the elements that are exactly 0.
    pub zeros: f64,
    /// Number of elements in each bin. Only for TensorBoard.
    #[serde(skip)]
    pub bins: Vec<u64>,
}

impl Spread {
    /// Computes the statistics of the elements, multiplied by `factor`. Sums are in f64 and in element order.
    pub fn of(elements: &[f32], factor: f64) -> Self {
        let values = || elements.iter().map(|element| f64::from(*element) * factor);
        let count = elements.len() as f64;
        let mean = values().sum::<f64>() / count;
        let deviation = (values().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        values().for_each(|value| (least, most) = (least.min(value), most.max(value)));
        let zeros = values().filter(|value| *value == 0.0).count() as f64 / count;
        let mut spread = Self { mean, deviation, least, most, zeros, bins: Vec::new() };
        if mean.is_finite() && !elements.is_empty() {
            let mut bins = vec![0; BINS];
            let scale = BINS as f64 / (most - least).max(f64::MIN_POSITIVE);
            values().for_each(|value| bins[(((value - least) * scale) as usize).min(BINS - 1)] += 1);
            spread.bins = bins;
        }
        spread
    }

    /// Returns the upper edges of the bins.
    pub fn edges(&self) -> Vec<f64> {
        let width = (self.most - self.least) / BINS as f64;
        // The edges must ascend even if all elements are equal.
        let width = width.max(f64::EPSILON * self.most.abs()).max(f64::MIN_POSITIVE);
        (1..=self.bins.len()).map(|k| self.least + k as f64 * width).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_matches_hand_computed_statistics() {
        let spread = Spread::of(&[0.0, 2.0, -2.0, 0.0, 4.0, 2.0], 0.5);
        assert_eq!((spread.mean, spread.least, spread.most, spread.zeros), (0.5, -1.0, 2.0, 2.0 / 6.0));
        assert!((spread.deviation - (5.5f64 / 6.0).sqrt()).abs() < 1e-12, "{}", spread.deviation);
        assert_eq!((spread.bins[0], spread.bins[13], spread.bins[39], spread.bins.iter().sum::<u64>()), (1, 2, 1, 6));
        assert_eq!(spread.edges()[39], 2.0);
        let even = Spread::of(&[3.0; 5], 1.0);
        assert!(even.deviation == 0.0 && even.bins.iter().sum::<u64>() == 5 && even.edges().is_sorted());
        let lost = Spread::of(&[1.0, f32::NAN], 1.0);
        assert!(lost.mean.is_nan() && lost.bins.is_empty() && Spread::of(&[], 1.0).mean.is_nan());
    }
}

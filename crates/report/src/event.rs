//! The events of a run, as they stand in metrics.jsonl: one struct each, field names included.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

/// Anything that a run reports. In JSON the key `event` says which.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The run begins.
    Start(Start),
    /// One optimizer step is done.
    Step(Step),
    /// One epoch is done.
    Epoch(Epoch),
    /// The exchange of gradients was measured.
    Exchange(Exchange),
    /// The parameters and gradients of the layers were measured.
    Layers(Layers),
    /// A split was scored.
    Eval(Eval),
    /// A checkpoint was written, or could not be.
    Checkpoint(Checkpoint),
    /// The run is over.
    End(End),
}

/// The run begins: what will happen, and on what.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Start {
    /// Optimizer steps already done: 0, or those of the checkpoint.
    pub step: u64,
    /// Epochs already done.
    pub epoch: u32,
    /// Epochs of the whole run.
    pub epochs: u32,
    /// Steps of one epoch.
    pub steps_per_epoch: u64,
    /// Step at which this run ends.
    pub last_step: u64,
    /// Steps of the whole run, where its length was given in steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Network.
    pub model: String,
    /// Trainable numbers.
    pub parameters: u64,
    /// Images of the training split.
    pub images: u64,
    /// Images a step, over all ranks.
    pub batch: usize,
    /// Logical shares of the batch.
    pub workers: usize,
    /// MPI ranks.
    pub ranks: usize,
    /// Everything else worth knowing, by name: device, MPI library, threads, schedule, memory ...
    pub facts: BTreeMap<String, String>,
}

/// One optimizer step, over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    /// Optimizer steps done, this one included: the first is 1.
    pub step: u64,
    /// Epoch that it belongs to, from 0.
    pub epoch: u32,
    /// Mean loss over the images of the step.
    pub loss: f64,
    /// Share of them classified rightly, in [0, 1].
    pub top1: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// Images a second, over all ranks.
    pub img_per_s: f64,
    /// Milliseconds that the slowest rank waited for its loader.
    pub data_wait_ms: f64,
    /// Milliseconds that the longest waiting rank waited for the others, in the step before.
    pub comm_wait_ms: f64,
    /// Milliseconds of the whole step.
    pub step_ms: f64,
    /// Least, median and most over the ranks of the milliseconds behind `data_wait_ms`.
    pub data_wait_ranks: [f64; 3],
    /// The same of `comm_wait_ms`, in the step before.
    pub comm_wait_ranks: [f64; 3],
    /// The same of the whole step, in the step before.
    pub step_ranks: [f64; 3],
    /// Digest of which sample went to which place of which worker: equal for every number of ranks.
    pub samples: u64,
    /// Norm of all gradients together before it was limited; only with `optimizer.clip_norm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// Factor of the losses in this step, on rank 0; only with `precision = "f16"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// Steps before this one that were left out because a gradient was Inf or NaN; with `loss_scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_steps: Option<u32>,
}

/// One epoch of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Epoch {
    /// Optimizer steps done.
    pub step: u64,
    /// The epoch that ended, from 0.
    pub epoch: u32,
    /// If the run ended during this epoch: the number of finished steps and of all steps. Only for printed output.
    #[serde(skip)]
    pub part: Option<(u64, u64)>,
    /// Mean training loss over its images.
    pub loss: f64,
    /// Share of them classified rightly.
    pub top1: f64,
    /// Learning rate of its last step.
    pub lr: f64,
    /// Images a second over all ranks, evaluation excluded.
    pub img_per_s: f64,
    /// Seconds, evaluation excluded.
    pub seconds: f64,
    /// What the loaders did.
    pub loader: Loading,
}

/// What the ranks' loaders did in an epoch; all but `skipped` of the rank that waited longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Loading {
    /// Samples that could not be used and were left out, over all ranks.
    pub skipped: u64,
    /// Seconds that compute waited for data.
    pub data_wait_s: f64,
    /// Batches that were ready when one was taken, on average.
    pub queue_depth: f64,
    /// Bytes of the records.
    pub bytes: u64,
    /// Microseconds of one thread per image: finding, reading and checking records.
    pub read_us: f64,
    /// The same: decoding.
    pub decode_us: f64,
    /// The same: transforms.
    pub transform_us: f64,
    /// The same: waiting for a free slot.
    pub slot_wait_us: f64,
}

/// What the exchange of gradients costs rank 0 a step: means over the first steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Exchange {
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch that they belong to.
    pub epoch: u32,
    /// The codec.
    pub codec: String,
    /// Steps measured.
    pub steps: u64,
    /// Bytes handed to MPI, a step.
    pub bytes: u64,
    /// Bytes of the same gradients as f32.
    pub float_bytes: u64,
    /// Milliseconds a step from gradients to what travels.
    pub encode_ms: f64,
    /// Milliseconds a step inside MPI; for `float` with the wait for other ranks, for others without.
    pub wire_ms: f64,
    /// Milliseconds a step back to gradients.
    pub decode_ms: f64,
    /// Milliseconds a step inside MPI that the same gradients take as f32, tried in the same steps.
    pub float_ms: Option<f64>,
}

/// Statistics of all parameters and of their gradients, after the sum over all ranks and before the update of the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layers {
    /// Optimizer steps done, this one included.
    pub step: u64,
    /// Epoch that it belongs to.
    pub epoch: u32,
    /// In the order of the network.
    pub tensors: Vec<TensorSpread>,
}

/// Statistics of one parameter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TensorSpread {
    /// The parameter.
    pub name: String,
    /// Its elements.
    pub elements: u64,
    /// Before the step.
    pub weight: Spread,
    /// The gradient of the mean loss, before it is limited.
    pub gradient: Spread,
    /// Share of the workers' codes that are 0; with a codec that makes such codes of this parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_codes: Option<f64>,
}

/// The score of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Eval {
    /// Optimizer steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: u32,
    /// Name of the split.
    pub split: String,
    /// Share whose best class is right, in [0, 1].
    pub top1: f64,
    /// Share whose right class is among the best five.
    pub top5: f64,
    /// Mean loss.
    pub loss: f64,
    /// Images.
    pub count: u64,
    /// Mean F1 of the classes; only where the run goes by it, or images may have several labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macro_f1: Option<f64>,
    /// F1 of all labels together; only where images may have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_f1: Option<f64>,
    /// Mean of the classes' average precisions; only where the run goes by it, or images may have several labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<f64>,
    /// Whether these are scores of the averages of the weights; left out where they are not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ema: bool,
    /// Name of the score by which this is the best so far, as `checkpoint.best_by` has it; left out where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    /// True if this split is scored only once, at the end of a run that watches another split. Omitted if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_end: bool,
}

/// A checkpoint: the file that rank 0 wrote beside training, or why it could not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Checkpoint {
    /// Optimizer steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: u32,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Milliseconds that training waited for the snapshot.
    pub wait_ms: f64,
    /// Milliseconds that it took to write, beside training.
    pub write_ms: f64,
    /// Why it was not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The run is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct End {
    /// Optimizer steps done.
    pub step: u64,
    /// Those that were done before the process started; for people.
    #[serde(skip)]
    pub before: u64,
    /// Epochs done.
    pub epoch: u32,
    /// Seconds since the process started.
    pub seconds: f64,
    /// Images a second over the training steps of this run.
    pub img_per_s: f64,
    /// The final model.
    pub model: PathBuf,
    /// Name, value and step of the score that selected the best checkpoint. Only for printed output.
    #[serde(skip)]
    pub best: Option<(String, f64, u64)>,
    /// CRC-32C of the parameters, of the running statistics and of the optimizer's values and averages, in hexadecimal with dashes between:
    /// equal for runs that computed the same bits.
    pub digest: String,
    /// Why the run ended before its time, by its scores: `target` or `patience`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Seconds from the first image to the score that reached `stop.target`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_to_target: Option<f64>,
}

impl Event {
    /// Optimizer steps done when it happened.
    pub fn step(&self) -> u64 {
        match self {
            Event::Start(e) => e.step,
            Event::Step(e) => e.step,
            Event::Epoch(e) => e.step,
            Event::Exchange(e) => e.step,
            Event::Layers(e) => e.step,
            Event::Eval(e) => e.step,
            Event::Checkpoint(e) => e.step,
            Event::End(e) => e.step,
        }
    }
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

/// Bins of equal width between the least and the most.
const BINS: usize = 40;

/// Statistics of a tensor. Elements that are no numbers make them NaN, which JSON has as null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, of the population.
    pub deviation: f64,
    /// The least element.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// Share of zeros.
    pub zeros: f64,
    /// Elements in each bin; for pictures alone.
    #[serde(skip)]
    pub bins: Vec<u64>,
}

impl Spread {
    /// Of these elements, each times `factor`; in f64 and in their order.
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

    /// The upper edges of the bins.
    pub fn edges(&self) -> Vec<f64> {
        let width = (self.most - self.least) / BINS as f64;
        // edges must ascend, where all elements are equal, too
        let width = width.max(f64::EPSILON * self.most.abs()).max(f64::MIN_POSITIVE);
        (1..=self.bins.len()).map(|k| self.least + k as f64 * width).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_by_hand() {
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

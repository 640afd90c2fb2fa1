//! Lines of metrics.jsonl as a reader sees them: keys that a line lacks, and numbers that JSON has as null, are NaN or empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// One line. Kinds of events that this build does not know are left out by the reader.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Line {
    Start(StartLine),
    Step(StepLine),
    Epoch(EpochLine),
    Exchange(ExchangeLine),
    Layers(LayersLine),
    Eval(EvalLine),
    End(EndLine),
    #[serde(other)]
    Other,
}

/// A number, NaN where the line has null.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Least, median and most over the ranks; NaN where the line has null.
fn spread<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 3], D::Error> {
    Ok(<[Option<f64>; 3]>::deserialize(from)?.map(|value| value.unwrap_or(f64::NAN)))
}

fn nan() -> f64 {
    f64::NAN
}

fn nans() -> [f64; 3] {
    [f64::NAN; 3]
}

/// A run, or a part of it after a resume, begins. The meaning of each field is that of [`crate::Start`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of crate::Start")]
pub struct StartLine {
    pub step: u64,
    pub epoch: u32,
    pub epochs: u32,
    pub steps_per_epoch: u64,
    pub last_step: u64,
    pub model: String,
    pub parameters: u64,
    pub images: u64,
    pub batch: u64,
    pub workers: u64,
    pub ranks: u64,
    pub facts: BTreeMap<String, String>,
    /// Date and time, RFC 3339, of builds that write it.
    pub utc: Option<String>,
}

/// One optimizer step; see [`crate::Step`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields of crate::Step")]
pub struct StepLine {
    pub step: u64,
    #[serde(default)]
    pub epoch: u32,
    #[serde(default = "nan", deserialize_with = "number")]
    pub loss: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub top1: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub lr: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub img_per_s: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub data_wait_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub comm_wait_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub step_ms: f64,
    #[serde(default = "nans", deserialize_with = "spread")]
    pub data_wait_ranks: [f64; 3],
    #[serde(default = "nans", deserialize_with = "spread")]
    pub comm_wait_ranks: [f64; 3],
    #[serde(default = "nans", deserialize_with = "spread")]
    pub step_ranks: [f64; 3],
    #[serde(default = "nan", deserialize_with = "number")]
    pub grad_norm: f64,
}

/// One epoch; see [`crate::Epoch`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields of crate::Epoch")]
pub struct EpochLine {
    pub step: u64,
    #[serde(default)]
    pub epoch: u32,
    #[serde(default = "nan", deserialize_with = "number")]
    pub loss: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub top1: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub img_per_s: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub seconds: f64,
    #[serde(default)]
    pub loader: BTreeMap<String, Option<f64>>,
}

/// What the exchange of gradients costs a step; see [`crate::Exchange`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields of crate::Exchange")]
pub struct ExchangeLine {
    pub codec: String,
    #[serde(default = "nan", deserialize_with = "number")]
    pub encode_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub wire_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub decode_ms: f64,
}

/// Statistics of the layers; see [`crate::Layers`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields of crate::Layers")]
pub struct LayersLine {
    pub step: u64,
    #[serde(default)]
    pub tensors: Vec<TensorLine>,
}

/// Statistics of one parameter; see [`crate::TensorSpread`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields of crate::TensorSpread")]
pub struct TensorLine {
    pub name: String,
    #[serde(default)]
    pub elements: u64,
    #[serde(default)]
    pub weight: SpreadLine,
    #[serde(default)]
    pub gradient: SpreadLine,
    pub zero_codes: Option<f64>,
}

/// How elements are spread; see [`crate::Spread`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of crate::Spread")]
pub struct SpreadLine {
    pub mean: Option<f64>,
    pub deviation: Option<f64>,
    pub least: Option<f64>,
    pub most: Option<f64>,
    pub zeros: Option<f64>,
}

/// The score of a split; see [`crate::Eval`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields of crate::Eval")]
pub struct EvalLine {
    pub step: u64,
    #[serde(default)]
    pub epoch: u32,
    #[serde(default)]
    pub split: String,
    #[serde(default = "nan", deserialize_with = "number")]
    pub top1: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub top5: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub loss: f64,
    #[serde(default)]
    pub count: u64,
    pub macro_f1: Option<f64>,
    pub micro_f1: Option<f64>,
    pub map: Option<f64>,
    #[serde(default)]
    pub ema: bool,
    pub best: Option<String>,
    #[serde(default)]
    pub at_end: bool,
}

impl EvalLine {
    /// The score by which models are compared: the mean average precision of images that may have several labels, else top-1.
    pub fn leading(&self) -> f64 {
        if self.has_several() { self.map.unwrap_or(f64::NAN) } else { self.top1 }
    }

    /// The same for a table.
    pub fn leading_text(&self) -> String {
        let name = if self.has_several() { "mAP " } else { "" };
        format!("{name}{:.2} %", 100.0 * self.leading())
    }

    /// Whether the images may have several labels.
    pub fn has_several(&self) -> bool {
        self.micro_f1.is_some()
    }
}

/// The run is over; see [`crate::End`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the fields of crate::End")]
pub struct EndLine {
    pub step: u64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub seconds: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub img_per_s: f64,
    #[serde(default)]
    pub digest: String,
    pub ended: Option<String>,
    pub seconds_to_target: Option<f64>,
}

//! The line of an evaluation in metrics.jsonl.

use serde::{Deserialize, Deserializer, Serialize};

/// Reads a number. Null becomes NaN.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

pub(super) fn nan() -> f64 {
    f64::NAN
}

/// The scores of a split, see [`crate::Eval`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
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
    pub rmse: Option<f64>,
    pub mae: Option<f64>,
    pub r2: Option<f64>,
    #[serde(default)]
    pub ema: bool,
    pub best: Option<String>,
    #[serde(default, skip_serializing)]
    pub at_end: bool,
}

impl EvalLine {
    /// Returns the score by which evaluations are compared: the mean average precision for multi-label data, R2 for numbers, otherwise
    /// top-1.
    pub fn leading(&self) -> f64 {
        match (self.has_numbers(), self.has_several()) {
            (true, _) => self.r2.unwrap_or(f64::NAN),
            (false, true) => self.map.unwrap_or(f64::NAN),
            (false, false) => self.top1,
        }
    }

    /// Formats the score of [`EvalLine::leading`] for a table. If it is not known, formats the score that selects the best checkpoint, or
    /// the loss. After a resume, that score may be the only one that is known.
    pub fn leading_text(&self) -> String {
        let leading = self.leading();
        if leading.is_nan() {
            let name = self.best.as_deref().map_or("loss", |best| best.strip_prefix("ema.").unwrap_or(best));
            let score = self.score(name);
            return match name {
                "loss" | "rmse" | "mae" | "r2" => format!("{name} {score:.4}"),
                _ => format!("{name} {:.2} %", 100.0 * score),
            };
        }
        match (self.has_numbers(), self.has_several()) {
            (true, _) => format!("R2 {leading:.4}"),
            (false, true) => format!("mAP {:.2} %", 100.0 * leading),
            (false, false) => format!("{:.2} %", 100.0 * leading),
        }
    }

    /// Returns the score with this name, or NaN if it is not known.
    fn score(&self, name: &str) -> f64 {
        let score = match name {
            "top1" => Some(self.top1),
            "top5" => Some(self.top5),
            "loss" => Some(self.loss),
            "macro_f1" => self.macro_f1,
            "micro_f1" => self.micro_f1,
            "map" => self.map,
            "rmse" => self.rmse,
            "mae" => self.mae,
            "r2" => self.r2,
            _ => None,
        };
        score.unwrap_or(f64::NAN)
    }

    /// Returns step, split and scores as a JSON object for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let Self { step, split, top1, top5, loss, macro_f1, map, rmse, mae, r2, .. } = self;
        serde_json::json!({"step": step, "split": split, "top1": top1, "top5": top5, "loss": loss, "macro_f1": macro_f1,
            "map": map, "rmse": rmse, "mae": mae, "r2": r2})
    }

    /// Returns true if labels are numbers.
    pub fn has_numbers(&self) -> bool {
        self.rmse.is_some()
    }

    /// Returns true for multi-label data.
    pub fn has_several(&self) -> bool {
        self.micro_f1.is_some()
    }
}

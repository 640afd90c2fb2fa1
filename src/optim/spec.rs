//! The `[optimizer]` section of a recipe: its keys, and what makes no sense. Defaults of single rules are theirs.

use serde::{Deserialize, Serialize};

use super::schedule::{maybe_number, number};
use super::{CATALOGUE, Entry, Method};

/// RMSProp's forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// PyTorch's.
    Torch,
    /// TensorFlow 1's.
    Tf,
}

/// The `[optimizer]` section of a recipe. A key that the kind does not use is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSpec {
    /// Update rule, a name of [`CATALOGUE`].
    pub kind: String,
    /// `sgd`, `rmsprop`, `lars`: in [0, 1).
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub momentum: Option<f64>,
    /// `sgd`: Nesterov's form of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nesterov: Option<bool>,
    /// `adam`, `adamw`: decay of the mean gradient, in [0, 1).
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub beta1: Option<f64>,
    /// `adam`, `adamw`: decay of the mean square, in [0, 1).
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub beta2: Option<f64>,
    /// `rmsprop`: whose formula.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// `rmsprop`: decay of the mean square, in [0, 1).
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub alpha: Option<f64>,
    /// `adam`, `adamw`, `rmsprop`: keeps the denominator from 0; > 0.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub eps: Option<f64>,
    /// `rmsprop`: divides by the deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub centered: Option<bool>,
    /// `lars`: trust coefficient, > 0.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub eta: Option<f64>,
    /// `lars`: the tensor's own rate is at most the learning rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub larc: Option<bool>,
    /// `lars`: patterns of the parameters that keep the plain learning rate; absent: all of one dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_adapt: Option<Vec<String>>,
    /// L2 coefficient: gradient += weight_decay * weight; `adamw`: weight -= lr * weight_decay * weight.
    #[serde(default, serialize_with = "number")]
    pub weight_decay: f64,
    /// Patterns of the parameters without weight decay; absent: none, for `lars` all of one dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_decay: Option<Vec<String>>,
    /// Largest norm of all gradients together, > 0.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub clip_norm: Option<f64>,
    /// Largest magnitude of an element of a gradient, > 0.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub clip_value: Option<f64>,
}

/// An `[optimizer]` section that makes no sense: the key at fault, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("optimizer.{key}: {why}")]
pub struct OptimizerError {
    /// Key inside `[optimizer]`.
    pub key: &'static str,
    /// Expected, got, what to try.
    pub why: String,
}

fn wrong<T>(key: &'static str, why: String) -> Result<T, OptimizerError> {
    Err(OptimizerError { key, why })
}

impl OptimizerSpec {
    /// Plain SGD with momentum.
    pub fn sgd(momentum: f64, nesterov: bool, weight_decay: f64) -> Self {
        let (momentum, nesterov) = (Some(momentum), Some(nesterov));
        Self { kind: "sgd".into(), momentum, nesterov, weight_decay, ..Self::default() }
    }

    /// Checks the kind, which keys it has, and every value.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let entry = self.entry()?;
        let strange = |(key, given): &(&'static str, bool)| *given && !entry.keys.contains(key);
        if let Some((key, _)) = self.given().into_iter().find(strange) {
            let kinds: Vec<&str> = CATALOGUE.iter().filter(|e| e.keys.contains(&key)).map(|e| e.name).collect();
            let (kinds, kind) = (kinds.join(" or "), entry.name);
            return wrong(key, format!("belongs to kind {kinds}, but kind = \"{kind}\""));
        }
        let share = |x: f64| (0.0..1.0).contains(&x);
        let shares = [("momentum", self.momentum), ("beta1", self.beta1), ("beta2", self.beta2), ("alpha", self.alpha)];
        let outside = |(key, value): (&'static str, Option<f64>)| Some((key, value.filter(|v| !share(*v))?));
        if let Some((key, got)) = shares.into_iter().find_map(outside) {
            return wrong(key, format!("must be in [0, 1), got {got}"));
        }
        let positive =
            [("eps", self.eps), ("eta", self.eta), ("clip_norm", self.clip_norm), ("clip_value", self.clip_value)];
        for (key, got) in positive.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            if got <= 0.0 {
                return wrong(key, format!("must be > 0, got {got}"));
            }
            // a smaller one would be 0 where the update is made
            if !(f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&got) {
                return wrong(key, format!("must be a number that f32 holds, got {got:e}"));
            }
        }
        if self.weight_decay < 0.0 {
            return wrong("weight_decay", format!("must be >= 0, got {}", self.weight_decay));
        }
        if self.nesterov == Some(true) && self.momentum.unwrap_or(0.0) == 0.0 {
            return wrong("nesterov", "needs optimizer.momentum > 0, as 0.9".into());
        }
        match self.clip_norm.and(self.clip_value) {
            Some(_) => wrong("clip_value", "stands beside clip_norm; choose one of the two".into()),
            None => Ok(()),
        }
    }

    fn entry(&self) -> Result<&'static Entry, OptimizerError> {
        let names: Vec<&str> = CATALOGUE.iter().map(|e| e.name).collect();
        match CATALOGUE.iter().find(|e| e.name == self.kind) {
            Some(entry) => Ok(entry),
            None => wrong("kind", format!("\"{}\" is none of {}", self.kind, names.join(", "))),
        }
    }

    /// The keys that not every kind has, and whether they were given.
    fn given(&self) -> [(&'static str, bool); 11] {
        [
            ("momentum", self.momentum.is_some()),
            ("nesterov", self.nesterov.is_some()),
            ("beta1", self.beta1.is_some()),
            ("beta2", self.beta2.is_some()),
            ("form", self.form.is_some()),
            ("alpha", self.alpha.is_some()),
            ("eps", self.eps.is_some()),
            ("centered", self.centered.is_some()),
            ("eta", self.eta.is_some()),
            ("larc", self.larc.is_some()),
            ("no_adapt", self.no_adapt.is_some()),
        ]
    }

    /// The update rule.
    pub fn method(&self) -> Result<Box<dyn Method>, OptimizerError> {
        Ok((self.entry()?.build)(self))
    }
}

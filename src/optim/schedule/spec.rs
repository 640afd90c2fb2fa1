//! The `[schedule]` section of a recipe: its keys, their defaults, and what makes no sense.

use serde::{Deserialize, Serialize, Serializer};

/// How the rate falls once the warm-up is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It does not fall.
    Constant,
    /// Times `gamma` at each milestone.
    Step,
    /// Half a cosine down to `end_lr`.
    Cosine,
    /// `(1 - u)^power` down to `end_lr`; `power` 1 is a straight line.
    Polynomial,
    /// Times `gamma` every `decay_epochs`, smoothly or as a staircase.
    Exponential,
}

impl Kind {
    /// The word that a recipe uses.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Constant => "constant",
            Kind::Step => "step",
            Kind::Cosine => "cosine",
            Kind::Polynomial => "polynomial",
            Kind::Exponential => "exponential",
        }
    }
}

/// Where a warm-up starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WarmupFrom {
    /// The word `"base"`: at `base_lr`, unscaled.
    Word(Base),
    /// At this rate, unscaled.
    Rate(#[serde(serialize_with = "number")] f64),
}

/// The word `"base"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// `base_lr`.
    Base,
}

/// The `[schedule]` section of a recipe. Epochs may be fractions. A key that the kind does not use is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Shape of the decay.
    pub kind: Kind,
    /// Rate for `reference_batch` images a step.
    #[serde(serialize_with = "number")]
    pub base_lr: f64,
    /// Batch that `base_lr` belongs to; absent: no scaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_batch: Option<usize>,
    /// Epochs of warm-up.
    #[serde(default, serialize_with = "number")]
    pub warmup_epochs: f64,
    /// Start of the warm-up; absent: `base_lr` if the target is higher, else 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_from: Option<WarmupFrom>,
    /// `step`: epochs, counted from 0 (the warm-up included), in ascending order.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "numbers")]
    pub milestones: Option<Vec<f64>>,
    /// `step`, `exponential`: factor; 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub gamma: Option<f64>,
    /// `cosine`, `polynomial`: last rate, scaled like `base_lr`; 0.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub end_lr: Option<f64>,
    /// `polynomial`: exponent; 1.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub power: Option<f64>,
    /// `exponential`: epochs per factor `gamma`; 1.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "maybe_number")]
    pub decay_epochs: Option<f64>,
    /// `exponential`: whole factors only; false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staircase: Option<bool>,
}

/// A schedule that makes no sense: the key of `[schedule]` at fault, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schedule.{key}: {why}")]
pub struct ScheduleError {
    /// Key inside `[schedule]`.
    pub key: &'static str,
    /// Expected, got, what to try.
    pub why: String,
}

fn wrong<T>(key: &'static str, why: String) -> Result<T, ScheduleError> {
    Err(ScheduleError { key, why })
}

impl ScheduleSpec {
    /// A constant rate, without scaling or warm-up.
    pub fn constant(lr: f64) -> Self {
        ScheduleSpec {
            kind: Kind::Constant,
            base_lr: lr,
            reference_batch: None,
            warmup_epochs: 0.0,
            warmup_from: None,
            milestones: None,
            gamma: None,
            end_lr: None,
            power: None,
            decay_epochs: None,
            staircase: None,
        }
    }

    /// Checks every value against the kind and against the length of the run.
    pub fn check(&self, epochs: u32) -> Result<(), ScheduleError> {
        self.check_ranges(epochs)?;
        self.check_keys()?;
        match (self.kind, &self.milestones) {
            (Kind::Step, Some(milestones)) => self.check_milestones(milestones),
            (Kind::Step, None) => wrong("milestones", "kind = \"step\" needs them, as milestones = [82, 123]".into()),
            _ => Ok(()),
        }
    }

    fn check_ranges(&self, epochs: u32) -> Result<(), ScheduleError> {
        let at_least = |key, value: f64, least: f64, open: bool| {
            let fine = value.is_finite() && if open { value > least } else { value >= least };
            let sign = if open { ">" } else { ">=" };
            if fine { Ok(()) } else { wrong(key, format!("must be {sign} {least}, got {value}")) }
        };
        at_least("base_lr", self.base_lr, 0.0, false)?;
        at_least("warmup_epochs", self.warmup_epochs, 0.0, false)?;
        if self.warmup_epochs > 0.0 && self.warmup_epochs >= f64::from(epochs) {
            let warmup = self.warmup_epochs;
            return wrong("warmup_epochs", format!("must be below epochs = {epochs}, got {warmup}"));
        }
        if self.reference_batch == Some(0) {
            return wrong("reference_batch", "must be >= 1, got 0".into());
        }
        if let Some(WarmupFrom::Rate(rate)) = self.warmup_from {
            at_least("warmup_from", rate, 0.0, false)?;
        }
        at_least("gamma", self.gamma(), 0.0, true)?;
        at_least("end_lr", self.end_lr.unwrap_or(0.0), 0.0, false)?;
        at_least("power", self.power.unwrap_or(1.0), 0.0, true)?;
        at_least("decay_epochs", self.decay_epochs.unwrap_or(1.0), 0.0, true)
    }

    fn check_keys(&self) -> Result<(), ScheduleError> {
        let given: [(&'static str, bool, &[Kind]); 6] = [
            ("milestones", self.milestones.is_some(), &[Kind::Step]),
            ("gamma", self.gamma.is_some(), &[Kind::Step, Kind::Exponential]),
            ("end_lr", self.end_lr.is_some(), &[Kind::Cosine, Kind::Polynomial]),
            ("power", self.power.is_some(), &[Kind::Polynomial]),
            ("decay_epochs", self.decay_epochs.is_some(), &[Kind::Exponential]),
            ("staircase", self.staircase.is_some(), &[Kind::Exponential]),
        ];
        for (key, given, kinds) in given {
            if given && !kinds.contains(&self.kind) {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                let (names, kind) = (names.join(" or "), self.kind.name());
                return wrong(key, format!("belongs to kind {names}, but kind = \"{kind}\""));
            }
        }
        if self.warmup_from.is_some() && self.warmup_epochs == 0.0 {
            return wrong("warmup_from", "has no effect with warmup_epochs = 0".into());
        }
        Ok(())
    }

    fn check_milestones(&self, milestones: &[f64]) -> Result<(), ScheduleError> {
        let first = milestones.first().copied().unwrap_or(f64::INFINITY);
        if first < self.warmup_epochs || first <= 0.0 {
            let warmup = self.warmup_epochs;
            return wrong(
                "milestones",
                format!("must lie after epoch 0 and after the warm-up ({warmup} epochs), got {first}"),
            );
        }
        match milestones.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => wrong("milestones", format!("must ascend, but {} is followed by {}", pair[0], pair[1])),
            None => Ok(()),
        }
    }

    /// The factor, or its default.
    pub(super) fn gamma(&self) -> f64 {
        self.gamma.unwrap_or(0.1)
    }
}

/// Writes whole numbers without a decimal point: `5`, not `5.0`.
pub(crate) fn number<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
    Number(*value).serialize(out)
}

/// The same for a number that may be absent.
pub(crate) fn maybe_number<S: Serializer>(value: &Option<f64>, out: S) -> Result<S::Ok, S::Error> {
    value.map(Number).serialize(out)
}

fn numbers<S: Serializer>(values: &Option<Vec<f64>>, out: S) -> Result<S::Ok, S::Error> {
    let values = values.iter().flatten().copied().map(Number);
    values.collect::<Vec<_>>().serialize(out)
}

struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Number(value) = *self;
        // Beyond 2^53 the integer would claim digits that the float does not have.
        if value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64 {
            out.serialize_i64(value as i64)
        } else {
            out.serialize_f64(value)
        }
    }
}

//! `loss.class_weights`: how much each class counts.

use std::str::FromStr;

use schema::{KeyType, KeyValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `loss.class_weights`.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// By the inverse of the classes' numbers of training images.
    Auto,
    /// By the inverse of their effective numbers, (1 - beta^n) / (1 - beta).
    Effective(f64),
    /// As given, one a class.
    Given(Vec<f64>),
}

/// The forms that `loss.class_weights` takes.
const FORMS: &str = "\"auto\", \"effective(beta)\" or a list of numbers, one a class";

impl FromStr for ClassWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix("effective(").and_then(|rest| rest.strip_suffix(')'));
        match (text, inner.map(|beta| beta.trim().parse::<f64>())) {
            ("auto", _) => Ok(Self::Auto),
            (_, Some(Ok(beta))) if beta > 0.0 && beta < 1.0 => Ok(Self::Effective(beta)),
            (_, Some(_)) => Err(format!("expected a beta in (0, 1), as effective(0.999), got \"{text}\"")),
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

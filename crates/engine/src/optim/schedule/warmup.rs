//! Where a warm-up starts.

use schema::{KeyType, KeyValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Learning rate at the start of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarmupFrom {
    /// `base_lr`, unscaled.
    Base,
    /// This rate, unscaled.
    Rate(f64),
}

impl KeyValue for WarmupFrom {
    const TYPE: KeyType = KeyType::WordOrNumber("base");
}

impl Serialize for WarmupFrom {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            WarmupFrom::Base => out.serialize_str("base"),
            WarmupFrom::Rate(rate) => rate.write(out),
        }
    }
}

impl<'de> Deserialize<'de> for WarmupFrom {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(source)? {
            toml::Value::String(word) if word == "base" => Ok(WarmupFrom::Base),
            toml::Value::Integer(rate) => Ok(WarmupFrom::Rate(rate as f64)),
            toml::Value::Float(rate) => Ok(WarmupFrom::Rate(rate)),
            other => Err(serde::de::Error::custom(format!("expected {}, got {other}", Self::TYPE.expected()))),
        }
    }
}

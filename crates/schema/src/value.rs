//! Rust types for the values of keys, and how they are written to TOML.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::field::KeyType;
use super::section::Section;

/// A Rust type for the value of a key.
pub trait KeyValue: Serialize {
    const TYPE: KeyType;

    /// Returns true if the key is omitted when the recipe is written.
    fn is_absent(&self) -> bool {
        false
    }

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.serialize(out)
    }
}

/// Serialises a value with [`KeyValue::write`].
pub struct Written<'a, T>(pub &'a T);

impl<T: KeyValue> Serialize for Written<'_, T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.write(out)
    }
}

impl KeyValue for String {
    const TYPE: KeyType = KeyType::Text;
}

impl KeyValue for bool {
    const TYPE: KeyType = KeyType::Switch;
}

impl KeyValue for u32 {
    const TYPE: KeyType = KeyType::Count(u32::MAX as u64);
}

impl KeyValue for u64 {
    const TYPE: KeyType = KeyType::Count(u64::MAX);
}

impl KeyValue for usize {
    const TYPE: KeyType = KeyType::Count(usize::MAX as u64);
}

impl KeyValue for Vec<String> {
    const TYPE: KeyType = KeyType::Texts;
}

/// Integral numbers are written without a decimal point: `5`, not `5.0`.
impl KeyValue for f64 {
    const TYPE: KeyType = KeyType::Number;

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        // Beyond 2^53 an integer would show digits that the float does not have.
        if self.fract() == 0.0 && self.abs() < (1u64 << 53) as f64 {
            out.serialize_i64(*self as i64)
        } else {
            out.serialize_f64(*self)
        }
    }
}

impl KeyValue for Vec<f64> {
    const TYPE: KeyType = KeyType::Numbers;

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.iter().map(Written))
    }
}

impl<T: Section + Serialize> KeyValue for Vec<T> {
    const TYPE: KeyType = KeyType::Tables(&T::SCHEMA);
}

impl KeyValue for Vec<[String; 2]> {
    const TYPE: KeyType = KeyType::Pairs;
}

impl KeyValue for Vec<[u32; 2]> {
    const TYPE: KeyType = KeyType::CountPairs(u32::MAX as u64);
}

impl<T: KeyValue> KeyValue for Option<T> {
    const TYPE: KeyType = T::TYPE;

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn write<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => value.write(out),
            None => out.serialize_none(),
        }
    }
}

/// Formats a value as TOML for the documentation. Floats below 1e-4 have an exponent.
pub fn toml_text<T: KeyValue>(value: &T) -> String {
    match toml::Value::try_from(Written(value)) {
        Ok(toml::Value::Float(small)) if small.abs() < 1e-4 => format!("{small:e}"),
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

// Values with their own notation, such as `window(8)`. They are parsed when the recipe is read and written as the user
// wrote them.

/// A type that is written in a notation of its own, such as `window(8)`.
pub trait TextForm: FromStr<Err = String> {
    /// Description of the notation for error messages and the documentation.
    const EXPECTED: &'static str;
}

/// A value together with the text that it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<T> {
    text: String,
    value: T,
}

impl<T: Copy> Parsed<T> {
    pub fn value(&self) -> T {
        self.value
    }
}

impl<T: FromStr> FromStr for Parsed<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Self { text: text.to_string(), value: text.parse()? })
    }
}

impl<T> Parsed<T> {
    /// Creates a value from a text. The text must parse to this value.
    pub fn new(text: &str, value: T) -> Self {
        Self { text: text.to_string(), value }
    }
}

impl<T> Serialize for Parsed<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.text)
    }
}

impl<'de, T: TextForm> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        String::deserialize(source)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<T: TextForm> KeyValue for Parsed<T> {
    const TYPE: KeyType = KeyType::Parsed { expected: T::EXPECTED, parse: |text| text.parse::<T>().map(drop) };
}

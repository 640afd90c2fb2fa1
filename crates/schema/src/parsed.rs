//! Values with a notation of their own, such as `window(8)`: parsed when the recipe is read, written as the user wrote them.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::field::KeyType;
use super::value::KeyValue;

/// A type with a notation of its own.
pub trait TextForm: FromStr<Err = String> {
    /// The notation, for error messages and the documentation.
    const EXPECTED: &'static str;
}

/// A value together with the text that it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<T> {
    text: String,
    value: T,
}

impl<T: Copy> Parsed<T> {
    /// The value.
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
    /// A value and its text, which must parse to it.
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

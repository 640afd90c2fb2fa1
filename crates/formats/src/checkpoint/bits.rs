//! Numbers between ranks, bit by bit: decimal text would not bring back every bit.

use serde::{Deserialize, Deserializer, Serializer};

/// Writes a number.
pub fn serialize<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(value.to_bits())
}

/// Reads a number.
pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    u64::deserialize(source).map(f64::from_bits)
}

/// Numbers that may be missing.
pub mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes a number, if there is one.
    pub fn serialize<S: Serializer>(value: &Option<f64>, out: S) -> Result<S::Ok, S::Error> {
        value.map(f64::to_bits).serialize(out)
    }

    /// Reads a number, if there is one.
    pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<u64>::deserialize(source)?.map(f64::from_bits))
    }
}

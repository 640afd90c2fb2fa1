//! State of a run that the engine or a device changes and that a checkpoint stores.

use serde::{Deserialize, Serialize};

/// The state of the plateau schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlateauState {
    #[serde(with = "bits")]
    pub best: f64,
    /// Evaluations without improvement since the best score or the last reduction of the rate. Evaluations in a
    /// cooldown do not count.
    pub since: u32,
    /// How often the schedule has lowered the learning rate.
    pub drops: u32,
    /// Number of evaluations that are left in the cooldown.
    pub cooldown: u32,
}

/// The loss scale for f16 and its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    pub scale: f32,
    /// Steps without Inf or NaN since the scale last grew.
    pub good: u32,
    /// Consecutive steps, up to the last one, that were skipped because of Inf or NaN. A checkpoint does not store this
    /// number.
    #[serde(skip)]
    pub bad: u32,
    /// Number of skipped steps since the run began.
    pub lost: u32,
}

impl LossScale {
    /// If the scale is smaller than this, reducing it has not helped: the gradients themselves are not finite.
    pub const LEAST: f32 = 1.0 / 1024.0;
}

/// Serialises f64 values as their bits when they are exchanged between ranks. Decimal text might lose bits, and JSON
/// cannot represent NaN.
pub mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(value.to_bits())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
        u64::deserialize(source).map(f64::from_bits)
    }

    /// Serialises optional f64 values as their bits.
    pub mod optional {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        pub fn serialize<S: Serializer>(value: &Option<f64>, out: S) -> Result<S::Ok, S::Error> {
            value.map(f64::to_bits).serialize(out)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Option<f64>, D::Error> {
            Ok(Option::<u64>::deserialize(source)?.map(f64::from_bits))
        }
    }
}

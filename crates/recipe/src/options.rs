//! Types for some keys: fixed sets of words, `reduce.codec` and `sync`.

use std::ops::Deref;

use comm::codec;
use comm::codec::Entry;
use schema::{KeyType, KeyValue, words};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The value of `reduce.path`: how gradients get from a device to the other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportSetting {
    /// The fastest transport that works.
    Auto,
    /// MPI reads and writes device memory.
    CudaAware,
    /// Gradients are copied through host memory.
    Staged,
    Nccl,
}

words! { TransportSetting { Auto = "auto", CudaAware = "cuda-aware", Staged = "staged", Nccl = "nccl" } }

/// The value of `loader.cache`: where all training images are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageCache {
    /// Images are read again in every epoch.
    None,
    Device,
}

words! { ImageCache { None = "none", Device = "device" } }

/// The value of `init.stem`: how the first convolution starts if the file's convolution reads a different number of
/// channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stem {
    /// The file's channels are repeated in order.
    Repeat,
    /// Each channel is the mean of the file's channels.
    Mean,
    /// The weights are random.
    Fresh,
}

words! { Stem { Repeat = "repeat", Mean = "mean", Fresh = "fresh" } }

/// The value of `loader.on_corrupt`, the action for training records that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorrupt {
    Fail,
    /// Skips and counts the records.
    Skip,
}

words! { OnCorrupt { Fail = "fail", Skip = "skip" } }

/// The value of `reduce.overlap`: whether gradients are reduced during the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Gradients are reduced during the backward pass if every rank has a CPU core left for it, or if the device computes
    /// asynchronously.
    Auto,
    On,
    Off,
}

impl KeyValue for Overlap {
    const TYPE: KeyType = KeyType::AutoSwitch;
}

impl Serialize for Overlap {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Overlap::Auto => out.serialize_str("auto"),
            Overlap::On => out.serialize_bool(true),
            Overlap::Off => out.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for Overlap {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(source)? {
            toml::Value::Boolean(true) => Ok(Overlap::On),
            toml::Value::Boolean(false) => Ok(Overlap::Off),
            toml::Value::String(word) if word == "auto" => Ok(Overlap::Auto),
            other => Err(serde::de::Error::custom(format!("expected {}, got {other}", Self::TYPE.expected()))),
        }
    }
}

/// The codec that `reduce.codec` selects.
#[derive(Clone, Copy)]
pub struct Codec(pub &'static Entry);

impl Codec {
    /// Returns the names of all codecs that use this key in `[reduce]`.
    pub fn with_key(key: &str) -> Vec<&'static str> {
        codec::CATALOGUE.iter().filter(|codec| codec.keys.contains(&key)).map(|codec| codec.name).collect()
    }
}

/// The default is the first codec of the catalogue, `float`, which sends f32 values.
impl Default for Codec {
    fn default() -> Self {
        Self(&codec::CATALOGUE[0])
    }
}

impl Deref for Codec {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.0
    }
}

impl PartialEq for Codec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl KeyValue for Codec {
    const TYPE: KeyType = KeyType::Choice(&codec::NAMES);
}

impl Serialize for Codec {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Codec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let name = String::deserialize(source)?;
        codec::find(&name).map(Self).ok_or_else(|| serde::de::Error::unknown_variant(&name, &codec::NAMES))
    }
}

/// The value of `sync`: when and how the ranks' parameters are synchronised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sync {
    /// Gradients are summed in every step. All ranks always have the same model.
    #[default]
    Allreduce,
    /// Local SGD: each rank trains independently. After this number of steps, all ranks continue from the mean of their
    /// models.
    Local(u64),
    /// Elastic averaging: each rank trains independently. Every `period` steps, each rank and a shared centre move
    /// towards each other.
    Easgd {
        /// tau, the number of steps between two synchronisations.
        period: u64,
        /// alpha: the fraction of the distance between rank and centre by which each of them moves.
        alpha: f64,
    },
}

/// The possible values of `sync`, for messages.
pub const FORMS: &str = "\"allreduce\", \"local(H)\" or \"easgd(tau, alpha)\"";

impl Sync {
    /// Parses a value such as `allreduce`, `local(8)` or `easgd(10, 0.1)`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let other = || format!("expected {FORMS}, got \"{text}\"");
        let (name, rest) = text.split_once('(').unwrap_or((text, ")"));
        let inner = rest.trim_end().strip_suffix(')').ok_or_else(other)?;
        let arguments: Vec<&str> = inner.split(',').map(str::trim).filter(|a| !a.is_empty()).collect();
        let steps = |text: &str| match text.parse::<u64>() {
            Ok(steps) if steps >= 1 => Ok(steps),
            _ => Err(format!("expected a number of steps >= 1, got {text}")),
        };
        match (name.trim(), arguments.as_slice()) {
            ("allreduce", []) => Ok(Self::Allreduce),
            ("local", [period]) => Ok(Self::Local(steps(period)?)),
            ("easgd", [period, alpha]) => match alpha.parse::<f64>() {
                Ok(alpha) if alpha > 0.0 && alpha <= 1.0 => Ok(Self::Easgd { period: steps(period)?, alpha }),
                _ => Err(format!("expected an alpha in (0, 1], got {alpha}; the paper uses 0.9 / ranks")),
            },
            _ => Err(other()),
        }
    }

    /// Rejects an elastic averaging `alpha` so large that the centre would move beyond the mean of the ranks.
    pub fn is_stable_on(self, ranks: usize) -> Result<(), String> {
        match self {
            Self::Easgd { alpha, .. } if alpha * ranks as f64 > 1.0 => {
                // rounded down, so that the value is accepted
                let most = (1e4 / ranks as f64).floor() / 1e4;
                Err(format!(
                    "alpha = {alpha} on {ranks} ranks moves the centre beyond their mean; expected at most 1 / ranks = {most}"
                ))
            }
            _ => Ok(()),
        }
    }
}

impl KeyValue for Sync {
    const TYPE: KeyType = KeyType::Parsed { expected: FORMS, parse: |text| Self::parse(text).map(drop) };
}

impl std::fmt::Display for Sync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Allreduce => f.write_str("allreduce"),
            Self::Local(period) => write!(f, "local({period})"),
            Self::Easgd { period, alpha } => write!(f, "easgd({period}, {alpha})"),
        }
    }
}

impl Serialize for Sync {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sync {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(source)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn the_alpha_that_a_message_recommends_is_accepted() {
        for ranks in 2..200 {
            let error = Sync::Easgd { period: 10, alpha: 0.99 }.is_stable_on(ranks).unwrap_err();
            let alpha: f64 = error.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(alpha > 0.98 / ranks as f64, "{ranks}: {error}");
            Sync::Easgd { period: 10, alpha }.is_stable_on(ranks).unwrap();
        }
    }

    #[test]
    fn forms_read_and_written() {
        for text in ["allreduce", "local(8)", "easgd(10, 0.1)"] {
            assert_eq!(Sync::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Sync::parse("local( 8 )"), Ok(Sync::Local(8)));
        assert_eq!(Sync::parse("easgd(10,0.25)"), Ok(Sync::Easgd { period: 10, alpha: 0.25 }));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_what_was_expected() {
        for text in ["locl(8)", "local", "local(8", "allreduce(2)", "easgd(4)"] {
            mentions(Sync::parse(text).unwrap_err(), &[FORMS, &format!("got \"{text}\"")]);
        }
        for (text, parts) in [
            ("local(0)", ["steps >= 1", "got 0"]),
            ("local(1.5)", ["steps >= 1", "got 1.5"]),
            ("easgd(4, 0)", ["alpha in (0, 1]", "got 0"]),
            ("easgd(4, nan)", ["alpha in (0, 1]", "got nan"]),
        ] {
            mentions(Sync::parse(text).unwrap_err(), &parts);
        }
    }
}

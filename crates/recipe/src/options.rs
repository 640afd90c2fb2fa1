//! The closed sets of values of single keys.

use schema::{KeyType, KeyValue, words};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `reduce.path`: how gradients get from a device to the other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportSetting {
    /// The fastest that works.
    Auto,
    /// MPI is given device memory.
    CudaAware,
    /// Through the host's memory.
    Staged,
    /// With NCCL.
    Nccl,
}

words! { TransportSetting { Auto = "auto", CudaAware = "cuda-aware", Staged = "staged", Nccl = "nccl" } }

/// `loader.cache`: where all training images are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageCache {
    /// Nowhere: they are read in every epoch.
    None,
    /// In the device's memory.
    Device,
}

words! { ImageCache { None = "none", Device = "device" } }

/// `loader.on_corrupt`: what happens to training records that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorrupt {
    /// They end the run.
    Fail,
    /// They are left out and counted.
    Skip,
}

words! { OnCorrupt { Fail = "fail", Skip = "skip" } }

/// `reduce.overlap`: whether gradients are reduced while backward still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Where a core is spare.
    Auto,
    /// Always.
    On,
    /// Never.
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

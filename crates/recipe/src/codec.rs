//! `reduce.codec`: an entry of the catalogue of codecs.

use std::ops::Deref;

use comm::codec;
use comm::codec::Entry;
use schema::{KeyType, KeyValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A codec by its name.
#[derive(Clone, Copy)]
pub struct Codec(&'static Entry);

impl Codec {
    /// Its entry in the catalogue.
    pub fn entry(&self) -> &'static Entry {
        self.0
    }

    /// Names of the codecs for which a key of `[reduce]` has a meaning.
    pub fn with_key(key: &str) -> Vec<&'static str> {
        codec::CATALOGUE.iter().filter(|codec| codec.keys.contains(&key)).map(|codec| codec.name).collect()
    }
}

/// The first of the catalogue, which sends f32.
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

//! What the rules of a run remember of its scores: it goes on with a checkpoint as if the run had never stopped.

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::h5;
use super::reader::Group;

/// The memory of all rules; that of a rule that is not used stays empty, and is not written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Of `[stop]`.
    pub stop: Option<Watched>,
    /// Of the plateau schedule.
    pub plateau: Option<Plateaued>,
    /// Seconds from the first image to this checkpoint, where `[stop]` has a target.
    #[serde(with = "bits::optional")]
    pub seconds: Option<f64>,
}

/// The score that `[stop]` watches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// The best so far.
    #[serde(with = "bits")]
    pub best: f64,
    /// The last one.
    #[serde(with = "bits")]
    pub last: f64,
    /// Scorings since the best.
    pub since: u32,
}

/// The score that the plateau schedule watches, and what it has done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plateaued {
    /// The best so far.
    #[serde(with = "bits")]
    pub best: f64,
    /// Scorings that count since the best, or since the rate was lowered.
    pub since: u32,
    /// How often the rate was lowered.
    pub drops: u32,
    /// Scorings left that do not count.
    pub cooldown: u32,
}

impl Memory {
    /// Writes what is there as attributes.
    pub(super) fn write(&self, group: &h5::Group) -> Result<(), Error> {
        if let Some(Watched { best, last, since }) = self.stop {
            group.put_number("stop_best", best)?;
            group.put_number("stop_last", last)?;
            group.put_number("stop_since", since)?;
        }
        if let Some(Plateaued { best, since, drops, cooldown }) = self.plateau {
            group.put_number("plateau_best", best)?;
            for (name, count) in [("since", since), ("drops", drops), ("cooldown", cooldown)] {
                group.put_number(&format!("plateau_{name}"), count)?;
            }
        }
        self.seconds.map_or(Ok(()), |seconds| group.put_number("seconds", seconds))
    }

    /// Reads what [`Memory::write`] wrote.
    pub(super) fn read(group: &Group) -> Result<Self, Error> {
        let has = |name: &str| group.attribute_names().any(|n| n == name);
        let stop = || {
            let [best, last] = [group.number("stop_best")?, group.number("stop_last")?];
            Ok::<_, Error>(Watched { best, last, since: group.number("stop_since")? })
        };
        let plateau = || {
            let count = |name: &str| group.number(&format!("plateau_{name}"));
            let best = group.number("plateau_best")?;
            let (since, drops, cooldown) = (count("since")?, count("drops")?, count("cooldown")?);
            Ok::<_, Error>(Plateaued { best, since, drops, cooldown })
        };
        Ok(Self {
            stop: has("stop_best").then(stop).transpose()?,
            plateau: has("plateau_best").then(plateau).transpose()?,
            seconds: has("seconds").then(|| group.number("seconds")).transpose()?,
        })
    }
}

/// Numbers between ranks, bit by bit: decimal text would not bring back every bit.
pub(super) mod bits {
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
}

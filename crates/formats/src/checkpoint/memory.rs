//! The state of the rules that depend on scores. It is stored in checkpoints, so that a resumed run behaves like an
//! uninterrupted one.

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::h5;
use super::reader::Group;

/// The state of all rules. A rule that is not used has no state, and nothing is written for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The state of `[stop]`.
    pub stop: Option<Watched>,
    /// The state of the plateau schedule.
    pub plateau: Option<Plateaued>,
    /// Seconds from the first image to this checkpoint. Only if `[stop]` has a target.
    #[serde(with = "bits::optional")]
    pub seconds: Option<f64>,
}

/// The score that `[stop]` watches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// The best score so far.
    #[serde(with = "bits")]
    pub best: f64,
    #[serde(with = "bits")]
    pub last: f64,
    /// Evaluations since the best score.
    pub since: u32,
}

/// The score that the plateau schedule watches, and the reductions of the rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plateaued {
    /// The best score so far.
    #[serde(with = "bits")]
    pub best: f64,
    /// Counted evaluations since the best score or the last reduction of the rate.
    pub since: u32,
    /// Number of reductions of the rate.
    pub drops: u32,
    /// Remaining evaluations that do not count.
    pub cooldown: u32,
}

impl Memory {
    /// Writes the existing state as attributes.
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

    /// Reads the attributes that [`Memory::write`] wrote.
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

/// Serialises f64 values as their bits when they are exchanged between ranks. Decimal text might lose bits, and JSON
/// cannot represent NaN.
pub(super) mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(value.to_bits())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
        u64::deserialize(source).map(f64::from_bits)
    }

    /// The same for optional values.
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

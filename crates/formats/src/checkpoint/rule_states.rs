//! The state of the rules that depend on scores. It is stored in checkpoints, so that a resumed run behaves like an
//! uninterrupted one.

use base::run_state::{PlateauState, bits};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::h5;
use super::reader::Group;

/// The state of all rules. A rule that is not used has no state, and nothing is written for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleStates {
    /// `None` if the recipe has no `[stop]`.
    pub stop: Option<StopState>,
    /// `None` for other schedules.
    pub plateau: Option<PlateauState>,
    /// Seconds from the first image to this checkpoint. `None` if `[stop]` has no target.
    #[serde(with = "bits::optional")]
    pub seconds: Option<f64>,
}

/// The score that `[stop]` watches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StopState {
    #[serde(with = "bits")]
    pub best: f64,
    #[serde(with = "bits")]
    pub last: f64,
    /// Evaluations since the best score.
    pub since: u32,
}

impl RuleStates {
    /// Writes attributes for the rules that are used.
    pub(super) fn write(&self, group: &h5::Group) -> Result<(), Error> {
        if let Some(StopState { best, last, since }) = self.stop {
            group.put_number("stop_best", best)?;
            group.put_number("stop_last", last)?;
            group.put_number("stop_since", since)?;
        }
        if let Some(PlateauState { best, since, drops, cooldown }) = self.plateau {
            group.put_number("plateau_best", best)?;
            for (name, count) in [("since", since), ("drops", drops), ("cooldown", cooldown)] {
                group.put_number(&format!("plateau_{name}"), count)?;
            }
        }
        self.seconds.map_or(Ok(()), |seconds| group.put_number("seconds", seconds))
    }

    /// Reads the attributes that [`RuleStates::write`] wrote.
    pub(super) fn read(group: &Group) -> Result<Self, Error> {
        let has = |name: &str| group.attribute_names().any(|n| n == name);
        let stop = || {
            let [best, last] = [group.number("stop_best")?, group.number("stop_last")?];
            Ok::<_, Error>(StopState { best, last, since: group.number("stop_since")? })
        };
        let plateau = || {
            let count = |name: &str| group.number(&format!("plateau_{name}"));
            let best = group.number("plateau_best")?;
            let (since, drops, cooldown) = (count("since")?, count("drops")?, count("cooldown")?);
            Ok::<_, Error>(PlateauState { best, since, drops, cooldown })
        };
        Ok(Self {
            stop: has("stop_best").then(stop).transpose()?,
            plateau: has("plateau_best").then(plateau).transpose()?,
            seconds: has("seconds").then(|| group.number("seconds")).transpose()?,
        })
    }
}

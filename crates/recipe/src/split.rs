//! `eval_split`: selects the splits that are scored, and when.

use loaders::text::did_you_mean;
use schema::quoted;

use super::error::Error;

/// The splits that a run scores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoredSplits {
    /// The split that is scored during training. The best checkpoint, `[stop]` and the plateau schedule follow its scores.
    pub watched: Option<String>,
    /// The split that is scored only once, at the end of the run. Its scores stay unbiased, because nothing was selected by them.
    pub at_end: Option<String>,
}

impl ScoredSplits {
    /// Selects the splits for a run. `wanted` is watched if the recipe names a split, otherwise `validation`, otherwise `test`. If
    /// `validation` is watched, `test` is scored at the end.
    ///
    /// # Errors
    /// Fails if `wanted` does not exist.
    pub fn of_run(wanted: Option<&str>, available: &[&str]) -> Result<Self, Error> {
        let watched = chosen(wanted, ["validation", "test"], available)?;
        let left = watched.as_deref() == Some("validation") && available.contains(&"test");
        Ok(Self { watched, at_end: left.then(|| "test".to_string()) })
    }

    /// Returns the names of both splits.
    pub fn names(self) -> impl Iterator<Item = String> {
        self.watched.into_iter().chain(self.at_end)
    }
}

/// Selects the split for evaluating a finished model: `wanted`, otherwise `test`, otherwise `validation`. Returns `None` if the data set
/// has neither.
///
/// # Errors
/// Fails if `wanted` does not exist.
pub fn judging_split(wanted: Option<&str>, available: &[&str]) -> Result<Option<String>, Error> {
    chosen(wanted, ["test", "validation"], available)
}

fn chosen(wanted: Option<&str>, defaults: [&str; 2], available: &[&str]) -> Result<Option<String>, Error> {
    let Some(wanted) = wanted else {
        return Ok(defaults.into_iter().find(|split| available.contains(split)).map(str::to_string));
    };
    if available.contains(&wanted) {
        return Ok(Some(wanted.to_string()));
    }
    let (has, hint) = (quoted(available), did_you_mean(wanted, available));
    let why = format!("the data set has no split \"{wanted}\"; it has {has}{hint}");
    Err(Error::Value { place: "eval_split".into(), why })
}

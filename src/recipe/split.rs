//! `eval_split`: which splits of the data set are scored, and when.

use loaders::nearest::did_you_mean;

use super::error::Error;
use crate::schema::quoted;

/// The splits that a run scores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoredSplits {
    /// The split that is scored while the run trains. The best checkpoint, `[stop]` and the plateau schedule follow its scores.
    pub watched: Option<String>,
    /// The split that is scored once, at the end of the run: nothing that was chosen by its scores could be judged by them.
    pub at_end: Option<String>,
}

impl ScoredSplits {
    /// For a recipe that names a split, or none: then `validation` is watched, else `test`. Where `validation` is watched, `test` is left
    /// for the end.
    ///
    /// # Errors
    /// For a wanted split that is missing.
    pub fn of_run(wanted: Option<&str>, available: &[&str]) -> Result<Self, Error> {
        let watched = chosen(wanted, ["validation", "test"], available)?;
        let left = watched.as_deref() == Some("validation") && available.contains(&"test");
        Ok(Self { watched, at_end: left.then(|| "test".to_string()) })
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = String> {
        self.watched.into_iter().chain(self.at_end)
    }
}

/// The split by which a finished model is judged: `wanted`, else `test`, else `validation`. `None` if the data set has neither.
///
/// # Errors
/// For a wanted split that is missing.
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

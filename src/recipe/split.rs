//! `eval_split`: which split of the data set is scored.

use loaders::nearest::did_you_mean;

use super::error::Error;
use crate::schema::quoted;

/// The split to score: `wanted`, else `test`, else `validation`, if the data set has it.
///
/// `Ok(None)`: nothing wanted and neither is there. A wanted split that is missing is an error.
pub fn eval_split(wanted: Option<&str>, available: &[&str]) -> Result<Option<String>, Error> {
    let Some(wanted) = wanted else {
        let default = ["test", "validation"].into_iter().find(|split| available.contains(split));
        return Ok(default.map(str::to_string));
    };
    if available.contains(&wanted) {
        return Ok(Some(wanted.to_string()));
    }
    let (has, hint) = (quoted(available), did_you_mean(wanted, available));
    let why = format!("the data set has no split \"{wanted}\"; it has {has}{hint}");
    Err(Error::Value { place: "eval_split".into(), why })
}

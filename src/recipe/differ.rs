//! What two recipes differ in, for a run that goes on from another's checkpoint.

use super::load::lookup;
use super::{Error, Recipe, keys};

/// Keys that say how a run is driven, not what it computes. The data set itself is compared, not where it lies.
const FREE: &[&str] = &[
    "data",
    "reduce.overlap",
    "reduce.path",
    "loader.threads",
    "loader.slots",
    "loader.io",
    "loader.buffer_mb",
    "log.every",
    "checkpoint.every",
    "checkpoint.keep",
];

impl Recipe {
    /// The keys in which `self` computes something else than `old`, each with both values, as `epochs: 5 there, 6 here`.
    pub fn differences(&self, old: &Recipe) -> Result<Vec<String>, Error> {
        let table = |recipe: &Recipe| {
            let text = recipe.to_toml()?;
            text.parse::<toml::Table>().map_err(|e| Error::Write { why: e.to_string() })
        };
        let (old, new) = (table(old)?, table(self)?);
        let shown = |table, path| lookup(table, path).map_or("absent".to_string(), |value| value.to_string());
        let paths = keys::KEYS.iter().map(|key| key.path).filter(|path| !FREE.contains(path));
        let different = paths.filter(|path| lookup(&old, path) != lookup(&new, path));
        Ok(different.map(|path| format!("{path}: {} there, {} here", shown(&old, path), shown(&new, path))).collect())
    }
}

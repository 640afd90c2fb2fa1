//! The differences of two recipes, for a run that resumes from the checkpoint of another recipe.

use super::error::Error;
use super::keys;
use super::recipe::Recipe;
use super::table::lookup;

impl Recipe {
    /// The keys by which `self` computes something else than `old`, each with both values, as `epochs: 5 there, 6 here`.
    pub fn differences(&self, old: &Recipe) -> Result<Vec<String>, Error> {
        let table = |recipe: &Recipe| {
            let text = recipe.to_toml()?;
            text.parse::<toml::Table>().map_err(|e| Error::Write { why: e.to_string() })
        };
        let (old, new) = (table(old)?, table(self)?);
        let shown = |table, path| lookup(table, path).map_or("absent".to_string(), |value| value.to_string());
        let paths = keys::KEYS.iter().filter(|key| !key.field.changeable).map(|key| key.path.as_str());
        let mut shown_paths = std::collections::BTreeSet::new();
        let paths = paths.filter(|path| shown_paths.insert(*path));
        let different = paths.filter(|path| lookup(&old, path) != lookup(&new, path));
        Ok(different.map(|path| format!("{path}: {} there, {} here", shown(&old, path), shown(&new, path))).collect())
    }
}

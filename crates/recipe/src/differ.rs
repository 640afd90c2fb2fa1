//! The differences of two recipes, for a run that resumes from the checkpoint of another recipe.

use std::collections::BTreeSet;

use loaders::transform::canonical;
use toml::{Table, Value};

use super::error::Error;
use super::keys::{self, KEYS, Key};
use super::recipe::Recipe;
use super::table::lookup;

/// Lists of transforms.
const TRANSFORMS: [&str; 2] = ["augment.train", "augment.eval"];

impl Recipe {
    /// The keys by which `self` computes something else than `old`, each with both values, as `epochs: 5 there, 6 here`. A key that is
    /// left out is the same as one with its default, and a transform the same however it is written.
    pub fn differences(&self, old: &Recipe) -> Result<Vec<String>, Error> {
        let table = |recipe: &Recipe| {
            let text = recipe.to_toml()?;
            text.parse::<Table>().map_err(|e| Error::Write { why: e.to_string() })
        };
        let (old, new) = (table(old)?, table(self)?);
        let shown = |table, path| lookup(table, path).map_or("absent".to_string(), |value| value.to_string());
        let paths = KEYS.iter().filter(|key| !key.field.changeable).map(|key| key.path.as_str());
        let mut shown_paths = BTreeSet::new();
        let paths = paths.filter(|path| shown_paths.insert(*path));
        // where both lack a key, its default can differ only by the kind, which is a key itself
        let differ = |path: &&str| lookup(&old, path) != lookup(&new, path) && meant(&old, path) != meant(&new, path);
        let different = paths.filter(differ);
        Ok(different.map(|path| format!("{path}: {} there, {} here", shown(&old, path), shown(&new, path))).collect())
    }
}

/// The value of a key, or its default; the transforms of a list, each as it is written in one way.
fn meant(table: &Table, path: &str) -> Option<Value> {
    let value = lookup(table, path).cloned().or_else(|| default_of(table, path))?;
    match value {
        Value::Array(list) if TRANSFORMS.contains(&path) => {
            let one = |item: Value| item.as_str().map(|text| Value::String(canonical(text))).unwrap_or(item);
            Some(Value::Array(list.into_iter().map(one).collect()))
        }
        value => Some(value),
    }
}

/// The default of a key for the kind that its section has; none where it has no single value. What happens by default in words is no
/// TOML, but for an empty list.
fn default_of(table: &Table, path: &str) -> Option<Value> {
    let section = path.split_once('.').map_or("", |(section, _)| section);
    let kind = lookup(table, &keys::choice_of(section)).and_then(Value::as_str);
    let fits = |key: &&Key| key.owners.is_empty() || kind.is_some_and(|kind| key.owners.contains(&kind));
    let key = KEYS.iter().filter(|key| key.path == path).find(fits)?;
    format!("value = {}", key.field.default_text()?).parse::<Table>().ok()?.remove("value")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "model = \"lenet\"\ndata = \"d\"\nepochs = 3\nbatch = 8\n";
    const REST: &str = "[schedule]\nkind = \"constant\"\nbase_lr = 0.1\n";

    /// What the recipe with `new` differs in from that with `old`: lines beside what every recipe needs.
    fn found(old: &str, new: &str) -> Vec<String> {
        let read = |lines: &str| Recipe::from_toml(&format!("{HEAD}{REST}{lines}")).unwrap();
        read(new).differences(&read(old)).unwrap()
    }

    #[test]
    fn a_key_at_its_default_is_as_if_it_were_left_out() {
        let sgd = "[optimizer]\nkind = \"sgd\"\n";
        for (given, kind) in [
            ("[eval]\nflip = false\nevery = 1", sgd),
            ("[stop]\nscore = \"top1\"\nmin_delta = 0", sgd),
            ("[freeze]\npatterns = []", sgd),
            ("[loss]\nkind = \"cross_entropy\"", sgd),
            ("", "[optimizer]\nkind = \"sgd\"\nmomentum = 0\nnesterov = false"),
            ("", "[optimizer]\nkind = \"lars\"\nmomentum = 0.9\neta = 1e-3"),
        ] {
            let bare = if kind.contains("lars") { "[optimizer]\nkind = \"lars\"\n" } else { sgd };
            let given = format!("{kind}\n{given}");
            assert_eq!((found(bare, &given), found(&given, bare)), (vec![], vec![]), "{given}");
        }
    }

    #[test]
    fn anything_else_differs_and_is_shown_as_it_stands() {
        let sgd = "[optimizer]\nkind = \"sgd\"\n";
        assert_eq!(found(sgd, &format!("{sgd}[eval]\nflip = true")), ["eval.flip: absent there, true here"]);
        assert_eq!(found(&format!("{sgd}[ema]\ndecay = 0.9"), sgd), ["ema.decay: 0.9 there, absent here"]);
        // the default of one kind is not that of another
        let lars = "[optimizer]\nkind = \"lars\"\nmomentum = 0\n";
        let bare = "[optimizer]\nkind = \"lars\"\n";
        assert_eq!(found(bare, lars), ["optimizer.momentum: absent there, 0 here"]);
        assert_eq!(found(sgd, bare), ["optimizer.kind: \"sgd\" there, \"lars\" here"]);
    }

    #[test]
    fn transforms_are_compared_by_what_they_say() {
        let list = |train: &str| format!("[optimizer]\nkind = \"sgd\"\n[augment]\ntrain = [{train}]\neval = []");
        let [plain, spaced] = [r#""pad_crop(4)", "normalize""#, r#""pad_crop( 4 )", "normalize()""#].map(list);
        assert_eq!(found(&plain, &spaced), [""; 0]);
        let other = found(&plain, &list(r#""pad_crop(5)", "normalize""#));
        assert_eq!(other, [r#"augment.train: ["pad_crop(4)", "normalize"] there, ["pad_crop(5)", "normalize"] here"#]);
    }
}

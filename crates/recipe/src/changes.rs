//! Changes to a recipe: `--set` and `--unset` on the command line, and the differences between two recipes when a run
//! resumes from the checkpoint of another recipe.

use std::collections::BTreeSet;

use loaders::transform::canonical;
use schema::describe_value;
use toml::{Table, Value};

use super::error::{Error, Origin};
use super::keys::{self, KEYS, Key};
use super::sections::Recipe;

/// Changes to the keys of a recipe file. All `unsets` are applied before the `sets`, and the `sets` in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Arguments of the form `KEY=VALUE`.
    pub sets: Vec<String>,
    /// Keys or whole sections to reset to their defaults.
    pub unsets: Vec<String>,
}

/// Removes a key or a whole section from a recipe.
///
/// # Errors
///
/// Returns an error if the key does not exist or is required.
pub(super) fn unset(table: &mut Table, path: &str) -> Result<(), Error> {
    let place = || format!("--unset {path}");
    if keys::is_section(path) {
        table.remove(path);
        return Ok(());
    }
    let key = keys::find(path).ok_or_else(|| Error::UnknownKey { place: place(), hint: super::hint::of_key(path) })?;
    if key.field.required() {
        let why = format!("every recipe needs this key; to change its value, use --set {path}=VALUE");
        return Err(Error::Value { place: place(), why });
    }
    remove(table, path);
    Ok(())
}

/// If a `--set` gave the kind (or codec) of a section, or an `--unset` reset it, removes the keys of the recipe file
/// that only other kinds have. Keys that a `--set` gave stay. Returns a line of text for each section from which keys
/// were removed.
pub(super) fn leave_out_other_kinds(table: &mut Table, unsets: &[String], origin: &Origin) -> Vec<String> {
    let is_choice = |path: &&String| path.ends_with(".kind") || *path == "reduce.codec";
    let set = origin.sets.keys().filter(is_choice).map(|path| (path, origin.of(path)));
    let unset = unsets.iter().filter(|path| is_choice(path) && !origin.sets.contains_key(*path));
    let chosen = set.chain(unset.map(|path| (path, format!("--unset {path}"))));
    chosen.filter_map(|(path, by)| leave_out(table, path, &by, origin)).collect()
}

/// If a `--set` gave `steps` but not `epochs`, removes the file's `epochs`, and the other way round. Returns a line of
/// text about the change, or `None` if nothing was removed.
pub(super) fn leave_out_other_length(table: &mut Table, origin: &Origin) -> Option<String> {
    let pairs = [("steps", "epochs"), ("epochs", "steps")];
    let (given, other) = pairs
        .into_iter()
        .find(|(given, other)| origin.sets.contains_key(*given) && !origin.sets.contains_key(*other))?;
    let left = table.remove(other)?;
    Some(format!("{}: {other} = {} in {} is ignored", origin.of(given), text(&left), origin.file))
}

/// Removes the keys of the file that do not belong to the kind that the key `choice`, such as `schedule.kind`, now has.
/// `by` is the command-line argument that changed it. Returns a line of text that lists the removed keys, or `None` if
/// it removed no key.
fn leave_out(table: &mut Table, choice: &str, by: &str, origin: &Origin) -> Option<String> {
    let kind = value_or_default(table, choice)?;
    let kind = kind.as_str()?;
    let (section, _) = choice.split_once('.')?;
    let in_section = |key: &&Key| key.path.split_once('.').is_some_and(|(own, _)| own == section);
    let fits = |key: &&Key| key.owners.is_empty() || key.owners.contains(&kind);
    let all: BTreeSet<&str> = KEYS.iter().filter(in_section).map(|key| key.path.as_str()).collect();
    let fitting: BTreeSet<&str> = KEYS.iter().filter(in_section).filter(fits).map(|key| key.path.as_str()).collect();
    let others = all.difference(&fitting).filter(|path| !origin.sets.contains_key(**path));
    let left: Vec<String> =
        others.filter_map(|path| remove(table, path).map(|value| format!("{path} = {}", text(&value)))).collect();
    let file = origin.file;
    (!left.is_empty()).then(|| format!("{by}: keys of another kind in {file} are ignored: {}", left.join(", ")))
}

fn text(value: &Value) -> String {
    if value.is_str() { value.to_string() } else { describe_value(value) }
}

/// Inserts a value and creates its section if needed.
pub(super) fn insert(table: &mut Table, path: &str, value: Value) {
    let Some((section, name)) = path.split_once('.') else {
        table.insert(path.to_string(), value);
        return;
    };
    let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(inner) = inner {
        inner.insert(name.to_string(), value);
    }
}

/// Returns the value at a path such as `optimizer.momentum`.
fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((section, name)) => table.get(section)?.as_table()?.get(name),
        None => table.get(path),
    }
}

/// Removes a value and returns it.
fn remove(table: &mut Table, path: &str) -> Option<Value> {
    match path.split_once('.') {
        Some((section, name)) => table.get_mut(section)?.as_table_mut()?.remove(name),
        None => table.remove(path),
    }
}

/// Keys with lists of transforms.
const TRANSFORMS: [&str; 2] = ["augment.train", "augment.eval"];

impl Recipe {
    /// Lists the keys with different values in `self` and `old`, without those that a resumed run may change. Each key
    /// has both values, like `epochs: 5 in the checkpoint, 6 in this run`. An absent key is equal to its default, and
    /// different spellings of a transform are equal.
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
        // If both recipes lack a key, they can only have different defaults if the kinds differ. The kind itself is
        // then listed.
        let differ = |path: &&str| {
            lookup(&old, path) != lookup(&new, path) && value_or_default(&old, path) != value_or_default(&new, path)
        };
        let different = paths.filter(differ);
        Ok(different
            .map(|path| format!("{path}: {} in the checkpoint, {} in this run", shown(&old, path), shown(&new, path)))
            .collect())
    }
}

/// Returns the value of a key or its default. Transforms are converted to their canonical spelling.
fn value_or_default(table: &Table, path: &str) -> Option<Value> {
    let value = lookup(table, path).cloned().or_else(|| default_of(table, path))?;
    match value {
        Value::Array(list) if TRANSFORMS.contains(&path) => {
            let one = |item: Value| item.as_str().map(|text| Value::String(canonical(text))).unwrap_or(item);
            Some(Value::Array(list.into_iter().map(one).collect()))
        }
        value => Some(value),
    }
}

/// Returns the default of a key for the kind of its section, or `None` if it has no single value. Some defaults are
/// descriptions in words. These are not valid TOML, except for the empty list.
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
    use crate::Loaded;
    use crate::tests::{invalid, read_lines as changed};
    use support::mentions;

    fn read(lines: &str, sets: &[&str]) -> Result<Loaded, Error> {
        changed(lines, sets, &[])
    }

    /// Asserts that there is a single note: `by` leaves out the line `left` of a.toml.
    #[track_caller]
    fn left_out(notes: &[String], by: &str, left: &str) {
        assert_eq!(notes.len(), 1, "{notes:?}");
        mentions(&notes[0], &[by, "a.toml", left]);
        assert_eq!(notes[0].matches(" = ").count(), 1, "a second key is left out: {notes:?}");
    }

    #[test]
    fn a_loss_of_another_kind_leaves_out_the_keys_of_the_old_one() {
        let focal = "epochs = 3\nloss = { kind = \"focal\", gamma = 3, class_weights = \"auto\" }";
        let Loaded { recipe, notes, .. } = read(focal, &["loss.kind=cross_entropy"]).unwrap();
        assert_eq!((recipe.loss.gamma, recipe.loss.class_weights.is_some()), (None, true));
        left_out(&notes, "--set loss.kind=cross_entropy", "loss.gamma = 3");
        // `sigmoid_focal` also has the key `gamma`.
        let Loaded { recipe, notes, .. } = read(focal, &["loss.kind=sigmoid_focal"]).unwrap();
        assert_eq!((recipe.loss.gamma, notes.len()), (Some(3.0), 0));
        let given = read(focal, &["loss.kind=bce", "loss.gamma=1"]).unwrap_err();
        invalid(&given, "--set loss.gamma=1", &["\"focal\"", "\"sigmoid_focal\"", "\"bce\""]);
    }

    #[test]
    fn a_resumed_run_may_cache_images_elsewhere() {
        let [plain, cached] = [&[][..], &["loader.cache=device"]].map(|sets| read("epochs = 3", sets).unwrap().recipe);
        assert_eq!(cached.differences(&plain).unwrap(), [""; 0]);
    }

    #[test]
    fn unsetting_a_kind_leaves_out_its_keys() {
        let focal = "epochs = 3\nloss = { kind = \"focal\", gamma = 3, class_weights = \"auto\" }";
        let Loaded { recipe, notes, .. } = changed(focal, &[], &["loss.kind"]).unwrap();
        assert_eq!((recipe.loss.kind, recipe.loss.gamma, recipe.loss.class_weights.is_some()), (None, None, true));
        left_out(&notes, "--unset loss.kind", "loss.gamma = 3");
        let codec = "epochs = 3\nreduce = { codec = \"ternary\", clip = 2 }";
        let Loaded { notes, .. } = changed(codec, &[], &["reduce.codec"]).unwrap();
        left_out(&notes, "--unset reduce.codec", "reduce.clip = 2");
        // A later `--set` of the kind decides.
        let Loaded { recipe, notes, .. } = changed(focal, &["loss.kind=sigmoid_focal"], &["loss.kind"]).unwrap();
        assert_eq!((recipe.loss.gamma, notes.len()), (Some(3.0), 0));
        assert_eq!(changed("epochs = 3", &[], &["loss.kind", "reduce.codec"]).unwrap().notes, Vec::<String>::new());
        // Keys given on the command line are never removed. Kinds without a default cannot be reset.
        let given = changed(focal, &["loss.gamma=1"], &["loss.kind"]).unwrap_err();
        invalid(&given, "--set loss.gamma=1", &["\"focal\"", "\"sigmoid_focal\"", "\"cross_entropy\""]);
        for kind in ["optimizer.kind", "schedule.kind"] {
            let required = changed(focal, &[], &[kind]).unwrap_err();
            invalid(&required, &format!("--unset {kind}"), &[&format!("--set {kind}=")]);
        }
    }

    #[test]
    fn the_length_of_a_run_is_in_epochs_or_steps() {
        let Loaded { recipe, notes, .. } = read("epochs = 3", &[]).unwrap();
        assert_eq!((recipe.total_steps(10), notes.len()), (30, 0));
        let Loaded { recipe, notes, .. } = read("epochs = 3", &["steps=25"]).unwrap();
        assert_eq!((recipe.total_steps(10), recipe.epochs), (25, None));
        left_out(&notes, "--set steps=25", "epochs = 3");
        let text = recipe.to_toml().unwrap();
        assert!(text.contains("\nsteps = 25\n") && !text.contains("\nepochs"), "{text}");
        assert_eq!(read("steps = 25", &["epochs=2"]).unwrap().recipe.total_steps(10), 20);
        let neither = read("", &[]).unwrap_err();
        invalid(&neither, "a.toml: epochs", &["required key is missing"]);
        invalid(&read("epochs = 3\nsteps = 25", &[]).unwrap_err(), "a.toml: steps", &["epochs = 3"]);
        invalid(&read("", &["steps=0"]).unwrap_err(), "--set steps=0", &[">= 1"]);
    }

    const HEAD: &str = "model = \"lenet\"\ndata = \"d\"\nepochs = 3\nbatch = 8\n";
    const REST: &str = "[schedule]\nkind = \"constant\"\nbase_lr = 0.1\n";

    /// Returns the differences between recipes with the lines `new` and `old`, added to the required keys.
    fn found(old: &str, new: &str) -> Vec<String> {
        let read = |lines: &str| Recipe::from_toml(&format!("{HEAD}{REST}{lines}")).unwrap();
        read(new).differences(&read(old)).unwrap()
    }

    /// Asserts that the recipes differ only in `key`, and that the value in `old` is shown before the value in `new`.
    #[track_caller]
    fn differ_in(key: &str, found: &[String], old: &str, new: &str) {
        assert_eq!(found.len(), 1, "{found:?}");
        let values = found[0].strip_prefix(&format!("{key}: ")).unwrap_or_else(|| panic!("{key}: {found:?}"));
        let (_, after) = values.split_once(old).unwrap_or_else(|| panic!("{old}: {found:?}"));
        assert!(after.contains(new), "{new}: {found:?}");
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
    fn other_differences_are_shown_with_both_values() {
        let sgd = "[optimizer]\nkind = \"sgd\"\n";
        differ_in("eval.flip", &found(sgd, &format!("{sgd}[eval]\nflip = true")), "absent", "true");
        differ_in("ema.decay", &found(&format!("{sgd}[ema]\ndecay = 0.9"), sgd), "0.9", "absent");
        // The default depends on the kind.
        let lars = "[optimizer]\nkind = \"lars\"\nmomentum = 0\n";
        let bare = "[optimizer]\nkind = \"lars\"\n";
        differ_in("optimizer.momentum", &found(bare, lars), "absent", "0");
        differ_in("optimizer.kind", &found(sgd, bare), "\"sgd\"", "\"lars\"");
    }

    #[test]
    fn spellings_of_a_transform_are_equal() {
        let list = |train: &str| format!("[optimizer]\nkind = \"sgd\"\n[augment]\ntrain = [{train}]\neval = []");
        let [plain, spaced] = [r#""pad_crop(4)", "normalize""#, r#""pad_crop( 4 )", "normalize()""#].map(list);
        assert_eq!(found(&plain, &spaced), [""; 0]);
        let other = found(&plain, &list(r#""pad_crop(5)", "normalize""#));
        differ_in("augment.train", &other, r#"["pad_crop(4)", "normalize"]"#, r#"["pad_crop(5)", "normalize"]"#);
    }
}

//! From a TOML file and `--set` arguments to a checked recipe.
//!
//! Keys, types and ranges are checked against the schema before serde makes the struct: serde alone would name neither the path of
//! the key nor the nearest key.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use schema::{KeyType, Problem, Schema, Section, check_section, shown};
use toml::{Table, Value};

use super::absent;
use super::changes::{self, Changes};
use super::check::{self, Known};
use super::error::{Error, Origin};
use super::hint;
use super::keys::{self, Key};
use super::recipe::Recipe;
use super::table::insert;
use super::text;

/// A recipe, and what there is to say about the way from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Checked.
    pub recipe: Recipe,
    /// What a change of the command line entailed, a line each.
    pub notes: Vec<String>,
    /// The file that describes the network, if it is not one of the catalogue. The recipe has its name alone, under which a copy of it
    /// stands beside the recipe in the output folder.
    pub network: Option<PathBuf>,
    /// Path of the data set next to the recipe, if the data set exists neither there nor in the current directory.
    pub data_beside: Option<PathBuf>,
}

impl Recipe {
    /// Reads `path`, applies the changes, and checks the whole.
    pub fn load(path: &Path, changes: &Changes, known: &Known) -> Result<Loaded, Error> {
        let file = path.display().to_string();
        let bytes = loaders::regular::read(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => Error::Absent { file: file.clone(), cure: absent::cure(path) },
            _ => Error::Read { file: file.clone(), source },
        })?;
        Self::parse(&text::decode(bytes, &file)?, &file, changes, known)
    }

    /// As [`Recipe::load`], from a text; `file` stands in the messages.
    pub fn parse(text: &str, file: &str, changes: &Changes, known: &Known) -> Result<Loaded, Error> {
        let mut table = text::parse(text, file)?;
        let mut origin = Origin { file, sets: BTreeMap::new() };
        check_keys(&table, "", &origin)?;
        changes.unsets.iter().try_for_each(|path| changes::unset(&mut table, path))?;
        for set in &changes.sets {
            let (key, value) = parse_set(set)?;
            origin.sets.insert(key.path.clone(), set.clone());
            insert(&mut table, &key.path, value);
        }
        let mut notes = changes::leave_out_other_kinds(&mut table, &changes.unsets, &origin);
        notes.extend(changes::leave_out_other_length(&mut table, &origin));
        let mut recipe = read(table, &origin)?;
        check::check(&recipe, &origin, known)?;
        let network = network_file(&mut recipe, &origin);
        let data_beside = find_data(&mut recipe, &origin);
        Ok(Loaded { recipe, notes, network, data_beside })
    }

    /// A recipe out of a file that trireme wrote, such as a checkpoint: names of networks and transforms are not checked.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let file = "the recipe in a checkpoint";
        let table = text::parse(text, file)?;
        let origin = Origin { file, sets: BTreeMap::new() };
        check_keys(&table, "", &origin)?;
        read(table, &origin)
    }
}

/// Returns the two possible paths of a file or folder in a recipe, most likely first. A path in the recipe file is relative to the file's
/// folder. A path on the command line is relative to the current directory. The other directory is tried second.
fn places(key: &str, path: &str, origin: &Origin) -> [PathBuf; 2] {
    let beside = Path::new(origin.file).parent().unwrap_or(Path::new("")).join(path);
    match origin.sets.contains_key(key) {
        true => [path.into(), beside],
        false => [beside, path.into()],
    }
}

/// Makes the data set's path relative to the current directory. If the data set does not exist, returns its path next to the recipe file.
fn find_data(recipe: &mut Recipe, origin: &Origin) -> Option<PathBuf> {
    let [first, second] = places("data", &recipe.data, origin);
    // a data set given on the command line is never searched next to the recipe
    if origin.sets.contains_key("data") || second.exists() && !first.exists() {
        return None;
    }
    if !first.exists() {
        return Some(first).filter(|first| *first != second);
    }
    recipe.data = first.to_string_lossy().into_owned();
    None
}

/// Returns the path of the network file, and leaves only its file name in the recipe.
fn network_file(recipe: &mut Recipe, origin: &Origin) -> Option<PathBuf> {
    let [first, second] = check::is_file(&recipe.model).then(|| places("model", &recipe.model, origin))?;
    let path = if second.exists() && !first.exists() { second } else { first };
    recipe.model = path.file_name().map_or_else(|| recipe.model.clone(), |name| name.to_string_lossy().into_owned());
    Some(path)
}

/// Checks keys, types and ranges by the schema, then makes the struct.
fn read(table: Table, origin: &Origin) -> Result<Recipe, Error> {
    check_by_schema("", &Recipe::SCHEMA, &table, origin)?;
    let none = Table::new();
    for (name, schema) in keys::sections() {
        check_by_schema(name, schema, table.get(name).and_then(Value::as_table).unwrap_or(&none), origin)?;
    }
    Value::Table(table).try_into().map_err(|e| text::syntax(origin.file, e))
}

fn check_by_schema(section: &str, schema: &Schema, table: &Table, origin: &Origin) -> Result<(), Error> {
    check_section(schema, table).map_err(|fault| {
        let path = if section.is_empty() { fault.key.to_string() } else { format!("{section}.{}", fault.key) };
        let place = origin.of(&path);
        match fault.problem {
            Problem::Missing { expected, doc } => Error::Missing { place, expected, doc },
            Problem::Type { expected, got } => Error::Type { place, expected, got },
            Problem::Value(why) => {
                let word = table.get("kind").and_then(Value::as_str).filter(|_| fault.key == "kind");
                let nearest = word.and_then(hint::of_kind).map(|ours| format!("; nearest to it is \"{ours}\""));
                Error::Value { place, why: why + &nearest.unwrap_or_default() }
            }
        }
    })
}

/// Refuses keys that are not in the table, at any depth.
fn check_keys(table: &Table, section: &str, origin: &Origin) -> Result<(), Error> {
    for (name, value) in table {
        let path = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        match value {
            Value::Table(inner) if section.is_empty() && keys::is_section(name) => check_keys(inner, name, origin)?,
            other if section.is_empty() && keys::is_section(name) => {
                return Err(Error::Type {
                    place: origin.of(&path),
                    expected: format!("a section [{name}]"),
                    got: shown(other),
                });
            }
            _ if keys::find(&path).is_none() => {
                return Err(Error::UnknownKey { place: origin.of(&path), hint: hint::of_key(&path) });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Splits `key.path=value`; the value is TOML if it parses as TOML, else a bare string.
fn parse_set(set: &str) -> Result<(&'static Key, Value), Error> {
    let (path, text) = set.split_once('=').ok_or_else(|| Error::Set { set: set.into() })?;
    let (path, text) = (path.trim(), text.trim());
    if path.is_empty() {
        return Err(Error::Set { set: set.into() });
    }
    let place = format!("--set {set}");
    if keys::is_section(path) {
        let why = format!("{path} is a section; set one of its keys, as {path}.NAME=value");
        return Err(Error::Value { place, why });
    }
    let key = keys::find(path).ok_or_else(|| Error::UnknownKey { place, hint: hint::of_key(path) })?;
    let bare = || Value::String(text.to_string());
    let value = match format!("value = {text}").parse::<Table>() {
        // More than one key: the text had a line break, so it was no single value.
        Ok(mut table) if table.len() == 1 => table.remove("value").unwrap_or_else(bare),
        _ => bare(),
    };
    // A folder or split may be called 2012.
    let wants_text = matches!(key.field.value_type, KeyType::Text | KeyType::Parsed { .. });
    Ok((key, if wants_text && !value.is_str() { bare() } else { value }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn paths_are_relative_to_the_file_and_on_the_command_line_to_the_current_directory() {
        let root = std::env::temp_dir().join(format!("trireme-paths-{}", std::process::id()));
        fs::create_dir_all(root.join("recipes/data")).unwrap();
        fs::write(root.join("recipes/net.toml"), "").unwrap();
        let file = root.join("recipes/a.toml").display().to_string();
        let beside = |name: &str| root.join("recipes").join(name);
        let load = |model: &str, data: &str, sets: &[&str]| {
            let text = format!(
                "model = \"{model}\"\ndata = \"{data}\"\nepochs = 1\nbatch = 8\n[optimizer]\nkind = \"sgd\"\n[schedule]\nkind = \
                 \"constant\"\nbase_lr = 0.1\n"
            );
            let changes = Changes { sets: sets.iter().map(|set| (*set).into()).collect(), unsets: Vec::new() };
            let known = Known { models: &["lenet"], transforms: &[] };
            let Loaded { recipe, network, data_beside, .. } = Recipe::parse(&text, &file, &changes, &known).unwrap();
            (PathBuf::from(recipe.data), network, data_beside)
        };
        assert_eq!(load("net.toml", "data", &[]), (beside("data"), Some(beside("net.toml")), None));
        // the current directory is searched second, and tests run in the package's directory
        let here = load("Cargo.toml", "src", &[]);
        assert_eq!(here, (PathBuf::from("src"), Some("Cargo.toml".into()), None));
        assert_eq!(load("lenet", "nowhere", &[]), ("nowhere".into(), None, Some(beside("nowhere"))));
        let given = load("lenet", "data", &["data=src", "model=Cargo.toml"]);
        assert_eq!(given, (PathBuf::from("src"), Some("Cargo.toml".into()), None));
        // a network given on the command line may be next to the recipe, as in earlier versions, but a data set may not
        let given = load("lenet", "src", &["data=data", "model=net.toml"]);
        assert_eq!(given, (PathBuf::from("data"), Some(beside("net.toml")), None));
        fs::remove_dir_all(&root).unwrap();
    }
}

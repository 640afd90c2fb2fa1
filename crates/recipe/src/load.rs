//! Reads a TOML file and `--set` arguments into a checked recipe.
//!
//! Keys, types and ranges are checked against the schema before serde creates the struct, because serde's errors
//! contain neither the path of the key nor a similar key.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base::text::nearest;
use schema::{KeyType, Schema, Section, check_section, describe_value};
use toml::{Table, Value};

use super::changes::{self, Changes, insert};
use super::check;
use super::error::{Error, Origin};
use super::hint;
use super::keys::{self, Key};
use super::sections::Recipe;

/// A recipe, with information about how it was loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub recipe: Recipe,
    /// Notes about the effects of changes on the command line, one line each.
    pub notes: Vec<String>,
    /// Path of the file that describes the network. `None` if the network is in the catalogue. The recipe contains only the file name,
    /// because a copy of the file is stored next to the recipe in the output folder.
    pub network: Option<PathBuf>,
    /// The path of the data set next to the recipe, if the recipe names the data set and it exists neither there nor in the current
    /// directory.
    pub data_beside: Option<PathBuf>,
}

impl Recipe {
    /// Reads the file `path`, applies the changes, and checks the result.
    pub fn load(path: &Path, changes: &Changes) -> Result<Loaded, Error> {
        let file = path.display().to_string();
        let bytes = loaders::regular::read(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => Error::Absent { file: file.clone(), cure: suggest_recipes(path) },
            _ => Error::Read { file: file.clone(), source },
        })?;
        Self::parse(&decode(bytes, &file)?, &file, changes)
    }

    /// Works like [`Recipe::load`] for a text. `file` is the name for messages.
    pub fn parse(text: &str, file: &str, changes: &Changes) -> Result<Loaded, Error> {
        let mut table = parse(text, file)?;
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
        check::check(&recipe, &origin)?;
        let network = network_file(&mut recipe, &origin);
        let data_beside = find_data(&mut recipe, &origin);
        Ok(Loaded { recipe, notes, network, data_beside })
    }

    /// Reads a recipe that trireme wrote, for example into a checkpoint. Names of networks and transforms are not
    /// checked.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let file = "the recipe in a checkpoint";
        let table = parse(text, file)?;
        let origin = Origin { file, sets: BTreeMap::new() };
        check_keys(&table, "", &origin)?;
        read(table, &origin)
    }
}

/// Returns the two possible paths of a file or folder in a recipe. The first is relative to the recipe's folder if the recipe file contains
/// the path, and to the current directory if it was given on the command line. The second path is relative to the other of these two
/// folders.
fn places(key: &str, path: &str, origin: &Origin) -> [PathBuf; 2] {
    let beside = Path::new(origin.file).parent().unwrap_or(Path::new("")).join(path);
    match origin.sets.contains_key(key) {
        true => [path.into(), beside],
        false => [beside, path.into()],
    }
}

/// Looks for the data set and changes its path in the recipe to one relative to the current directory. If it exists neither next to the
/// recipe file nor in the current directory, keeps the path and returns the path next to the recipe file. A data set that cannot be reached
/// is not missing: opening it reports the cause. Does nothing if the path was given on the command line.
fn find_data(recipe: &mut Recipe, origin: &Origin) -> Option<PathBuf> {
    let [first, second] = places("data", &recipe.data, origin);
    // a data set given on the command line is never searched next to the recipe
    if origin.sets.contains_key("data") || second.exists() && !first.exists() {
        return None;
    }
    if matches!(first.try_exists(), Ok(false)) {
        return Some(first);
    }
    recipe.data = first.to_string_lossy().into_owned();
    None
}

/// Finds the network's file and returns its path. Keeps only the file name in the recipe.
fn network_file(recipe: &mut Recipe, origin: &Origin) -> Option<PathBuf> {
    let [first, second] = check::is_file(&recipe.model).then(|| places("model", &recipe.model, origin))?;
    let path = if second.exists() && !first.exists() { second } else { first };
    recipe.model = path.file_name().map_or_else(|| recipe.model.clone(), |name| name.to_string_lossy().into_owned());
    Some(path)
}

/// Checks keys, types and ranges against the schema, then creates the struct.
fn read(table: Table, origin: &Origin) -> Result<Recipe, Error> {
    check_by_schema("", &Recipe::SCHEMA, &table, origin)?;
    let none = Table::new();
    for (name, schema) in keys::sections() {
        check_by_schema(name, schema, table.get(name).and_then(Value::as_table).unwrap_or(&none), origin)?;
    }
    Value::Table(table).try_into().map_err(|e| syntax(origin.file, e))
}

fn check_by_schema(section: &str, schema: &Schema, table: &Table, origin: &Origin) -> Result<(), Error> {
    check_section(schema, table).map_err(|fault| {
        let path = if section.is_empty() { fault.key.to_string() } else { format!("{section}.{}", fault.key) };
        let word = table.get("kind").and_then(Value::as_str).filter(|_| fault.key == "kind");
        let nearest = word.and_then(hint::of_kind).map(|ours| format!("; the most similar kind is \"{ours}\""));
        Error::Value { place: origin.of(&path), why: fault.why + &nearest.unwrap_or_default() }
    })
}

/// Returns an error if the table or one of its sections has an unknown key.
fn check_keys(table: &Table, section: &str, origin: &Origin) -> Result<(), Error> {
    for (name, value) in table {
        let path = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        match value {
            Value::Table(inner) if section.is_empty() && keys::is_section(name) => check_keys(inner, name, origin)?,
            other if section.is_empty() && keys::is_section(name) => {
                let why = format!("expected a section [{name}], got {}", describe_value(other));
                return Err(Error::Value { place: origin.of(&path), why });
            }
            _ if keys::find(&path).is_none() => {
                return Err(Error::UnknownKey { place: origin.of(&path), hint: hint::of_key(&path) });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Splits `key.path=value`. If the value is not valid TOML, takes it as a string without quotes.
fn parse_set(set: &str) -> Result<(&'static Key, Value), Error> {
    let (path, text) = set.split_once('=').ok_or_else(|| Error::Set { set: set.into() })?;
    let (path, text) = (path.trim(), text.trim());
    if path.is_empty() {
        return Err(Error::Set { set: set.into() });
    }
    let place = format!("--set {set}");
    if keys::is_section(path) {
        let why = format!("{path} is a section; set one of its keys, such as {path}.NAME=value");
        return Err(Error::Value { place, why });
    }
    let key = keys::find(path).ok_or_else(|| Error::UnknownKey { place, hint: hint::of_key(path) })?;
    let bare = || Value::String(text.to_string());
    let value = match format!("value = {text}").parse::<Table>() {
        // More than one key means that the text had a line break, so it was not a single value.
        Ok(mut table) if table.len() == 1 => table.remove("value").unwrap_or_else(bare),
        _ => bare(),
    };
    // A folder or split may have a name like 2012, which TOML reads as a number.
    let wants_text = matches!(key.field.value_type, KeyType::Text | KeyType::Parsed { .. });
    Ok((key, if wants_text && !value.is_str() { bare() } else { value }))
}

/// Maximum number of recipes to list.
const LISTED: usize = 8;

/// Returns a hint for a recipe file that does not exist: a file with a similar name, or the recipes in that folder or
/// in its folder `recipes`.
pub fn suggest_recipes(path: &Path) -> String {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let below = folder.join("recipes");
    let (here, there) = (recipes(folder), recipes(&below));
    let shown = |folder: &Path, name: &str| folder.join(name).display().to_string();
    for (folder, names) in [(folder, &here), (&*below, &there)] {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Some(found) = nearest(&name, &names) {
            return format!("; did you mean {}?", shown(folder, found));
        }
    }
    let (folder, names) = if here.is_empty() { (&*below, there) } else { (folder, here) };
    let listed: Vec<String> = names.iter().take(LISTED).map(|name| shown(folder, name)).collect();
    match names.len() - listed.len() {
        _ if names.is_empty() => "; recipes are TOML files, and trireme has some in its folder `recipes`".into(),
        0 => format!("; the existing recipes are {}", listed.join(", ")),
        more => format!("; the existing recipes are {} and {more} more", listed.join(", ")),
    }
}

/// Returns the names of the recipes in a folder, sorted.
fn recipes(folder: &Path) -> Vec<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let recipes = entries.filter(|entry| is_recipe(&entry.path()));
    let mut names: Vec<String> = recipes.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns true if a file seems to be a recipe: TOML with a model.
fn is_recipe(path: &Path) -> bool {
    let names_a_model = |text: String| text.lines().any(|line| line.starts_with("model"));
    path.extension().is_some_and(|extension| extension == "toml")
        && path.is_file()
        && std::fs::read_to_string(path).is_ok_and(names_a_model)
}

/// Decodes the bytes of a file as UTF-8.
///
/// # Errors
///
/// Returns an error with the line, and how to save the file.
pub(super) fn decode(bytes: Vec<u8>, file: &str) -> Result<String, Error> {
    let wide = [[0xff, 0xfe], [0xfe, 0xff]].iter().any(|mark| bytes.starts_with(mark));
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        let what = match error.as_bytes().get(at) {
            _ if wide => "the file is UTF-16".into(),
            Some(byte) => format!("line {line} holds the byte 0x{byte:02x}, which is not UTF-8"),
            None => "the file is not UTF-8".into(),
        };
        Error::Syntax { file: file.into(), why: format!("{what}; save the file as UTF-8") }
    })
}

/// Parses a text as TOML.
///
/// # Errors
///
/// Returns an error with line and column, or with a number that is too large for TOML.
pub(super) fn parse(text: &str, file: &str) -> Result<Table, Error> {
    text.parse().map_err(|error| match beyond_integers(&error) {
        Some(number) => {
            let line = text.lines().position(|line| line.contains(&number));
            let place = line.map_or_else(String::new, |line| format!("line {}: ", line + 1));
            let why = format!("{place}{number} does not fit into a 64-bit integer, the maximum is {}", i64::MAX);
            Error::Syntax { file: file.into(), why }
        }
        None => syntax(file, error),
    })
}

pub(super) fn syntax(file: &str, error: toml::de::Error) -> Error {
    Error::Syntax { file: file.into(), why: error.to_string() }
}

/// Returns the integer that the parser rejected because it has more than 64 bits. The parser's own message only names a Rust type.
fn beyond_integers(error: &toml::de::Error) -> Option<String> {
    let (_, rest) = error.message().split_once("integer `")?;
    let (number, rest) = rest.split_once("` as ")?;
    (rest.starts_with("i128") || rest.starts_with("u128") || rest.starts_with("u64")).then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use support::mentions;

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
            let Loaded { recipe, network, data_beside, .. } = Recipe::parse(&text, &file, &changes).unwrap();
            (PathBuf::from(recipe.data), network, data_beside)
        };
        assert_eq!(load("net.toml", "data", &[]), (beside("data"), Some(beside("net.toml")), None));
        // the current directory is searched second, and tests run in the package's directory
        let here = load("Cargo.toml", "src", &[]);
        assert_eq!(here, (PathBuf::from("src"), Some("Cargo.toml".into()), None));
        assert_eq!(load("lenet", "nowhere", &[]), ("nowhere".into(), None, Some(beside("nowhere"))));
        assert_eq!(load("lenet", "/nowhere", &[]), ("/nowhere".into(), None, Some("/nowhere".into())));
        // a link to itself cannot be reached, like a folder without permission
        std::os::unix::fs::symlink("loop", beside("loop")).unwrap();
        assert_eq!(load("lenet", "loop", &[]), (beside("loop"), None, None));
        assert_eq!(load("lenet", "data", &["data=nowhere"]), ("nowhere".into(), None, None));
        let given = load("lenet", "data", &["data=src", "model=Cargo.toml"]);
        assert_eq!(given, (PathBuf::from("src"), Some("Cargo.toml".into()), None));
        // a network given on the command line is also searched next to the recipe, as in earlier versions, but a data set is not
        let given = load("lenet", "src", &["data=data", "model=net.toml"]);
        assert_eq!(given, (PathBuf::from("data"), Some(beside("net.toml")), None));
        fs::remove_dir_all(&root).unwrap();
    }

    const RECIPE: &str = "# LeNet\nmodel = \"lenet\"\n";

    #[test]
    fn similar_names_are_suggested_and_others_listed() {
        let dir = std::env::temp_dir().join(format!("trireme-absent-{}", std::process::id()));
        let below = dir.join("recipes");
        fs::create_dir_all(&below).unwrap();
        let cure_of = |name: &str| suggest_recipes(&dir.join(name)).replace(&format!("{}/", dir.display()), "");
        let named = |name: &str| -> Vec<String> {
            let cure = cure_of(name);
            let words = cure.split_whitespace().map(|word| word.trim_end_matches([',', '?']));
            words.filter(|word| word.ends_with(".toml")).map(String::from).collect()
        };
        let absent = cure_of("x.toml");
        assert!(named("x.toml").is_empty() && absent.contains("`recipes`"), "{absent}");
        for name in ["mnist-lenet.toml", "notes.txt", "cifar10-resnet20.toml"] {
            fs::write(below.join(name), RECIPE).unwrap();
        }
        // This file is TOML, but not a recipe.
        fs::write(dir.join("rustfmt.toml"), "max_width = 120\n").unwrap();
        assert_eq!(named("mnist_lenet.toml"), ["recipes/mnist-lenet.toml"]);
        assert_eq!(named("else"), ["recipes/cifar10-resnet20.toml", "recipes/mnist-lenet.toml"]);
        fs::write(dir.join("mine.toml"), RECIPE).unwrap();
        assert_eq!(named("something-else.toml"), ["mine.toml"]);
        (0..9).for_each(|i| fs::write(dir.join(format!("run-of-mine-{i}.toml")), RECIPE).unwrap());
        assert_eq!(named("mine.tml"), ["mine.toml"]);
        let many = named("something-else.toml");
        assert_eq!((many.len(), many[7].as_str()), (LISTED, "run-of-mine-6.toml"), "{many:?}");
        assert!(cure_of("something-else.toml").contains("2 more"), "{}", cure_of("something-else.toml"));
        fs::remove_dir_all(dir).unwrap();
    }

    /// Asserts that an error is about a.toml's syntax, and that the reason contains all `parts`.
    #[track_caller]
    fn is_syntax(error: Error, parts: &[&str]) {
        let Error::Syntax { file, why } = error else { panic!("{error:?}") };
        assert_eq!(file, "a.toml");
        mentions(why, parts);
    }

    #[test]
    fn a_file_that_is_not_utf_8_says_where_and_what_to_do() {
        let refused = |bytes: &[u8]| decode(bytes.to_vec(), "a.toml").unwrap_err();
        is_syntax(refused(b"model = \"lenet\"\ndata = \"caf\xe9\"\n"), &["line 2", "0xe9", "UTF-8"]);
        is_syntax(refused(b"\xff\xfem\0o\0"), &["UTF-16", "UTF-8"]);
        assert_eq!(decode("data = \"caf\u{e9}\"".into(), "a.toml").unwrap(), "data = \"caf\u{e9}\"");
    }

    #[test]
    fn an_integer_beyond_64_bits_is_refused_with_its_line() {
        let refused = |text: &str| parse(text, "a.toml").unwrap_err();
        let large = "99999999999999999999";
        let error = refused(&format!("seed = 1\nbatch = {large}\n"));
        is_syntax(error, &["line 2", large, "64-bit", "9223372036854775807"]);
        is_syntax(refused("seed = = 1"), &["line 1"]);
    }
}

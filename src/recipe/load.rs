//! From a TOML file and `--set` arguments to a checked recipe.
//!
//! Keys and types are checked against the table of `keys` before serde sees them: serde alone
//! would name neither the key path nor the nearest key.

use super::error::{Error, Origin};
use super::keys::{self, KEYS, Kind};
use super::{Known, Recipe, Sync, check, did_you_mean};
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

impl Recipe {
    /// Reads `path`, applies each `--set` in order, and checks the whole.
    pub fn load(path: &Path, sets: &[String], known: &Known) -> Result<Self, Error> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { file: file.clone(), source })?;
        Self::parse(&text, &file, sets, known)
    }

    /// As [`Recipe::load`], from a text; `file` stands in the messages.
    pub fn parse(text: &str, file: &str, sets: &[String], known: &Known) -> Result<Self, Error> {
        let syntax = |e: toml::de::Error| Error::Syntax { file: file.into(), why: e.to_string() };
        let mut table: Table = text.parse().map_err(syntax)?;
        let mut origin = Origin { file, sets: BTreeMap::new() };
        check_keys(&table, "", &origin)?;
        for set in sets {
            let (key, value) = parse_set(set)?;
            origin.sets.insert(key.path.to_string(), set.clone());
            insert(&mut table, key.path, value);
        }
        for key in KEYS {
            check_type(key, &table, &origin)?;
        }
        // Ranges of the integer types are all that the table of keys has not settled by now.
        let recipe: Recipe = Value::Table(table).try_into().map_err(syntax)?;
        check::check(&recipe, &origin, known)?;
        Ok(recipe)
    }
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
                return Err(Error::UnknownKey { place: origin.of(&path), hint: hint(&path) });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Help for an unknown key: the nearest path, else the path that ends in the same word.
fn hint(path: &str) -> String {
    let paths: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
    let near = did_you_mean(path, &paths);
    if !near.is_empty() {
        return near;
    }
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let lasts: Vec<&str> = KEYS.iter().map(|key| last(key.path)).collect();
    let word = path.rsplit('.').next().unwrap_or(path);
    super::nearest(word, &lasts)
        .and_then(|found| KEYS.iter().find(|key| last(key.path) == found))
        .map(|key| format!("; did you mean \"{}\"?", key.path))
        .unwrap_or_else(|| "; `trireme train --help` lists the keys of a recipe".into())
}

/// Splits `key.path=value`; the value is TOML if it parses as TOML, else a bare string.
fn parse_set(set: &str) -> Result<(&'static keys::Key, Value), Error> {
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
    let key = keys::find(path).ok_or_else(|| Error::UnknownKey { place, hint: hint(path) })?;
    let bare = || Value::String(text.to_string());
    let value = match format!("value = {text}").parse::<Table>() {
        // More than one key: the text had a line break, so it was no single value.
        Ok(mut table) if table.len() == 1 => table.remove("value").unwrap_or_else(bare),
        _ => bare(),
    };
    // A folder or split may be called 2012.
    let wants_text = matches!(key.kind, Kind::Text);
    Ok((key, if wants_text && !value.is_str() { bare() } else { value }))
}

fn insert(table: &mut Table, path: &str, value: Value) {
    let Some((section, name)) = path.split_once('.') else {
        table.insert(path.to_string(), value);
        return;
    };
    let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(inner) = inner {
        inner.insert(name.to_string(), value);
    }
}

/// The value at a path such as `optimizer.momentum`.
pub(super) fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((section, name)) => table.get(section)?.as_table()?.get(name),
        None => table.get(path),
    }
}

fn check_type(key: &keys::Key, table: &Table, origin: &Origin) -> Result<(), Error> {
    let place = || origin.of(key.path);
    let Some(value) = lookup(table, key.path) else {
        if key.required {
            return Err(Error::Missing { place: place(), expected: key.kind.expected(), doc: key.doc });
        }
        return Ok(());
    };
    if !key.kind.accepts(value) {
        return Err(Error::Type { place: place(), expected: key.kind.expected(), got: shown(value) });
    }
    match (key.kind, value.as_str()) {
        (Kind::Choice(words), Some(word)) if !words.contains(&word) => Err(Error::Value {
            place: place(),
            why: format!(
                "\"{word}\" is not available in this build, which has {}{}",
                keys::quoted(words),
                did_you_mean(word, words)
            ),
        }),
        (Kind::Sync, Some(text)) => Sync::parse(text).map(drop).map_err(|why| Error::Value { place: place(), why }),
        _ => Ok(()),
    }
}

/// A value as it stands in a message: cut short, with its type where the text alone could mislead.
fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.chars().count() > 60 {
        text = text.chars().take(57).collect::<String>() + "...";
    }
    match value {
        Value::String(_) => format!("the string {text}"),
        Value::Table(_) => "a section".into(),
        _ => text,
    }
}

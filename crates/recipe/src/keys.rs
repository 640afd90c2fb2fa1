//! Every key that a recipe may hold, as a list: for `--set`, `--help`, the documentation and the tests. The schema of each section
//! defines them.

use std::sync::LazyLock;

use schema::{DefaultValue, Field, KeyType, Schema, Section};

use super::codec::Codec;
use super::loss::LossSpec;
use super::recipe::Recipe;

/// One key of a recipe.
#[derive(Clone, Debug)]
pub struct Key {
    /// Path, as `--set` takes it: `optimizer.momentum`.
    pub path: String,
    /// Kinds (or codecs) that have the key; empty: it does not depend on the kind.
    pub owners: Vec<&'static str>,
    /// Type, default, range, documentation.
    pub field: &'static Field,
}

/// All keys, in the order in which a recipe is written. A key that differs between kinds stands here once for each difference.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let (sections, top): (Vec<&'static Field>, Vec<_>) =
        Recipe::SCHEMA.fields.iter().partition(|field| matches!(field.value_type, KeyType::Section(_)));
    let mut keys: Vec<Key> = top.into_iter().map(|field| key("", field)).collect();
    for section in sections {
        if let KeyType::Section(schema) = section.value_type {
            keys.extend(of_section(section.name, schema));
        }
    }
    keys
});

/// The sections of a recipe by name, in order.
pub fn sections() -> impl Iterator<Item = (&'static str, &'static Schema)> {
    Recipe::SCHEMA.fields.iter().filter_map(|field| match field.value_type {
        KeyType::Section(schema) => Some((field.name, schema)),
        _ => None,
    })
}

fn key(section: &str, field: &'static Field) -> Key {
    let path = if section.is_empty() { field.name.to_string() } else { format!("{section}.{}", field.name) };
    let owners = match section {
        "reduce" => Codec::with_key(field.name),
        "loss" => LossSpec::kinds_with(field.name),
        _ => Vec::new(),
    };
    Key { path, owners, field }
}

/// The keys of a section: `kind`, the keys of its kinds, its own.
fn of_section(name: &str, schema: &'static Schema) -> Vec<Key> {
    let mut own: Vec<Key> = schema.fields.iter().map(|field| key(name, field)).collect();
    let Some(kind) = &schema.kind else { return own };
    let mut of_kinds: Vec<Key> = Vec::new();
    for one in kind.kinds {
        for field in one.fields {
            let added = Key { owners: vec![one.name], ..key(name, field) };
            match of_kinds.iter_mut().find(|known| known.path == added.path && known.text() == added.text()) {
                Some(known) => known.owners.push(one.name),
                None => of_kinds.push(added),
            }
        }
    }
    let mut keys = vec![key(name, &kind.field)];
    let (first, last) = if kind.first { (of_kinds, own) } else { (std::mem::take(&mut own), of_kinds) };
    keys.extend(first.into_iter().chain(last));
    keys
}

impl Key {
    /// Meaning, allowed values and default on one line.
    pub fn text(&self) -> String {
        let allowed = match (self.field.value_type.words(), self.field.range.text()) {
            (Some(words), _) => format!(": {words}"),
            (None, range) if range.is_empty() => range,
            (None, range) => format!(", {range}"),
        };
        let doc = self.field.doc.trim().trim_end_matches('.');
        let default = self.field.default_text().unwrap_or("required".into());
        format!("{doc}{allowed} ({default})")
    }
}

/// The key of this path.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Returns true if this value, as TOML, is the default of a key for every kind that has the key.
pub fn is_default(path: &str, value: &str) -> bool {
    let mut keys = KEYS.iter().filter(|key| key.path == path).peekable();
    keys.peek().is_some() && keys.all(|key| matches!(key.field.default, DefaultValue::Value(text) if text() == value))
}

/// The key whose value says which keys a section has: `optimizer.kind`, `reduce.codec`.
pub fn choice_of(section: &str) -> String {
    let name = if section == "reduce" { "codec" } else { "kind" };
    format!("{section}.{name}")
}

/// Whether this is the name of a section such as `optimizer`.
pub fn is_section(name: &str) -> bool {
    sections().any(|(section, _)| section == name)
}

/// The keys as text, one a line, for `--help`.
pub fn table() -> String {
    let width = KEYS.iter().map(|key| key.path.len()).max().unwrap_or(0);
    let line = |key: &Key| {
        let owners = if key.owners.is_empty() { String::new() } else { format!("{}: ", key.owners.join(", ")) };
        format!("  {:width$}  {owners}{}\n", key.path, key.text())
    };
    KEYS.iter().map(line).collect()
}

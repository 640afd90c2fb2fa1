//! Lists all recipe keys, for `--set`, `--help`, the tests and `docs/recipe.md`. The list is built from the sections'
//! schemas.

use std::sync::LazyLock;

use schema::{DefaultValue, Field, KeyType, Schema, Section};

use super::loss::LossSpec;
use super::options::Codec;
use super::sections::Recipe;

#[derive(Clone, Debug)]
pub struct Key {
    /// The path as in `--set`, such as `optimizer.momentum`.
    pub path: String,
    /// The kinds or codecs that have the key. Empty if all have it.
    pub owners: Vec<&'static str>,
    pub field: &'static Field,
}

/// All keys, in the order in which a recipe is written. A key that differs between kinds has one entry per variant.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let top = Recipe::SCHEMA.fields.iter().filter(|field| !matches!(field.value_type, KeyType::Section(_)));
    let top = top.map(|field| key("", field));
    top.chain(sections().flat_map(|(name, schema)| of_section(name, schema))).collect()
});

/// Returns the names and schemas of the sections, in order.
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

/// Returns a section's keys: `kind`, then the keys that some kinds have and the keys that all kinds have. `kind.first` says
/// which of these two groups comes first.
fn of_section(name: &str, schema: &'static Schema) -> Vec<Key> {
    let own: Vec<Key> = schema.fields.iter().map(|field| key(name, field)).collect();
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
    let (first, last) = if kind.first { (of_kinds, own) } else { (own, of_kinds) };
    keys.extend(first.into_iter().chain(last));
    keys
}

impl Key {
    /// Formats meaning, allowed values and default of the key on one line.
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

/// Returns the key with this path.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Returns true if `value`, as TOML, is the default of a key for every kind that has the key.
pub fn is_default(path: &str, value: &str) -> bool {
    let mut keys = KEYS.iter().filter(|key| key.path == path).peekable();
    keys.peek().is_some() && keys.all(|key| matches!(key.field.default, DefaultValue::Value(text) if text() == value))
}

/// Returns the key that determines which keys a section has, such as `optimizer.kind` or `reduce.codec`.
pub fn choice_of(section: &str) -> String {
    let name = if section == "reduce" { "codec" } else { "kind" };
    format!("{section}.{name}")
}

pub fn is_section(name: &str) -> bool {
    sections().any(|(section, _)| section == name)
}

/// Formats the list of keys for `--help`: a line with the key, then an indented line with its meaning. clap keeps the
/// indentation when it wraps the second line.
pub fn table() -> String {
    let entry = |key: &Key| {
        let owners = if key.owners.is_empty() { String::new() } else { format!("{}: ", key.owners.join(", ")) };
        format!("  {}\n      {owners}{}\n", key.path, key.text())
    };
    KEYS.iter().map(entry).collect()
}

const INTRODUCTION: &str = "\
# Which keys does a recipe have?

The tables below list all keys, as does `trireme train --help`. A recipe is a TOML file that defines a training run: network, data set,
optimizer, schedule. The folder `recipes/` has recipes, most of them for published results. OUT/recipe.toml records the recipe that a run
used.

`--set key=value` changes a key for one run, for example `--set optimizer.momentum=0.8`. `--unset key` removes a key or a whole section, so
that it has its default. If a `--set` changes the `kind` of a section or `reduce.codec`, trireme ignores the keys of the file that only the
old kind has, and lists them. `--unset` of a `kind` or codec that has a default does the same.

A key that is not in these tables, or that belongs to another kind of optimizer, schedule or codec, is an error. Patterns of parameters
match names such as `layer1.0.bn1.bias`: `*` matches any characters, `?` exactly one.

<!-- The tables are made by `TRIREME_BLESS=1 cargo test -p recipe docs` from the schema in the source. -->
";

/// Returns the text of `docs/recipe.md`.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_string();
    text += &format!("\n## Keys outside of sections\n\n{}\n", Recipe::SCHEMA.doc.trim());
    text += &markdown_table(KEYS.iter().filter(|key| !key.path.contains('.')));
    for (name, schema) in sections() {
        text += &format!("\n## [{name}]\n\n{}\n", schema.doc.trim());
        if let Some(kind) = &schema.kind {
            text += "\n| kind | effect |\n|---|---|\n";
            kind.kinds.iter().for_each(|kind| text += &format!("| `\"{}\"` | {} |\n", kind.name, cell(kind.doc)));
        }
        let prefix = format!("{name}.");
        text += &markdown_table(KEYS.iter().filter(|key| key.path.starts_with(&prefix)));
    }
    text
}

fn markdown_table<'a>(keys: impl Iterator<Item = &'a Key>) -> String {
    let mut text = "\n| key | value | default | meaning |\n|---|---|---|---|\n".to_string();
    keys.for_each(|key| text += &row(key));
    text
}

fn row(key: &Key) -> String {
    let field = key.field;
    let value = match (field.value_type.markdown(), field.range.text()) {
        (value, range) if range.is_empty() => value,
        (value, range) => format!("{value} {range}"),
    };
    let default = match field.default_text() {
        None => "required".to_string(),
        Some(default) if default.contains(' ') => default,
        Some(default) => format!("`{default}`"),
    };
    let owners: Vec<String> = key.owners.iter().map(|owner| format!("`{owner}`")).collect();
    let owners = if owners.is_empty() { String::new() } else { format!("{}: ", owners.join(", ")) };
    format!("| `{}` | {} | {} | {owners}{} |\n", key.path, cell(&value), cell(&default), cell(field.doc))
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

#[cfg(test)]
mod docs_tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_is_what_the_schema_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipe.md");
        if std::env::var_os("TRIREME_BLESS").is_some() {
            std::fs::write(&path, markdown()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        let hint = "docs/recipe.md differs from the schema; TRIREME_BLESS=1 cargo test -p recipe docs writes it";
        assert!(page == markdown(), "{hint}");
    }
}

//! `docs/recipe.md`, made from the schema.

use schema::Section;

use super::keys::{KEYS, Key, sections};
use super::recipe::Recipe;

const INTRODUCTION: &str = "\
# Recipe

A recipe is a TOML file that defines what a run computes: network, data set, optimizer, schedule. Recipes, most of them of published
results, are in `recipes/`. `--set key=value` changes any key at the start, as `--set optimizer.momentum=0.8`; `trireme train --help`
lists all keys. `--unset key` takes one out, or a whole section, so that it has its default again. A `--set` that changes the `kind` of a
section, or `reduce.codec`, leaves out the keys of the file that only the old kind has, and says which; so does `--unset` of a `kind` or
codec that has a default.
OUT/recipe.toml records the recipe as it was used.

A key that is not in these tables, or that belongs to another kind of optimizer, schedule or codec, is refused. Patterns of parameters
match names such as `layer1.0.bn1.bias`: `*` is any run of characters, `?` exactly one.

<!-- The tables are made by `TRIREME_BLESS=1 cargo test -p recipe docs` from the schema in the source. -->
";

/// The text of `docs/recipe.md`.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_string();
    text += &format!("\n## Keys outside of sections\n\n{}\n", about(Recipe::SCHEMA.doc));
    text += &table(KEYS.iter().filter(|key| !key.path.contains('.')));
    for (name, schema) in sections() {
        text += &format!("\n## [{name}]\n\n{}\n", about(schema.doc));
        if let Some(kind) = &schema.kind {
            text += "\n| kind | what it does |\n|---|---|\n";
            kind.kinds.iter().for_each(|kind| text += &format!("| `\"{}\"` | {} |\n", kind.name, cell(kind.doc)));
        }
        let prefix = format!("{name}.");
        text += &table(KEYS.iter().filter(|key| key.path.starts_with(&prefix)));
    }
    text
}

/// A doc comment as a paragraph.
fn about(doc: &str) -> String {
    doc.trim().into()
}

fn table<'a>(keys: impl Iterator<Item = &'a Key>) -> String {
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

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

#[cfg(test)]
mod tests {
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

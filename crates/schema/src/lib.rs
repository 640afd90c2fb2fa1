//! Definitions of recipe keys. `section!` declares type, default, range and a line of documentation for each key. The
//! struct, its TOML form, the checks, `--help` and `docs/recipe.md` are generated from it.
//!
//! This crate knows no particular key. The keys are in the crates `recipe` and `engine`.

mod check;
mod field;
mod pattern;
mod section;
mod value;

pub use check::{Fault, check_section, describe_value};
pub use field::{DefaultValue, Field, KeyType, Kind, KindField, Range, Schema, number_text, quoted};
pub use pattern::matches;
pub use section::{Section, bare};
pub use value::{KeyValue, Parsed, TextForm, Written, toml_text};

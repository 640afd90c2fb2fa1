//! What a key of a recipe is: its Rust type, default, range and one line of documentation, written once in `section!`. The struct,
//! its TOML form, the checks, `--help` and `docs/recipe.md` all come from there.
//!
//! Nothing here knows a particular key: those are in the crates `recipe` and `engine`.

mod check;
mod field;
mod pattern;
mod section;
mod value;

pub use check::{Fault, Problem, check_section, shown};
pub use field::{DefaultValue, Field, KeyType, Kind, KindField, Range, Schema, number_text, quoted};
pub use pattern::matches;
pub use section::{Section, bare};
pub use value::{KeyValue, Parsed, TextForm, Written, toml_text};

//! What a key of a recipe is: its Rust type, default, range and one line of documentation, written once in `section!`. The struct,
//! its TOML form, the checks, `--help` and `docs/recipe.md` all come from there.
//!
//! Nothing here knows a particular key: those are in [`recipe`] and [`engine::optim`].

mod check;
mod field;
mod key_type;
mod kinds;
mod parsed;
mod pattern;
mod range;
mod section;
mod value;
mod words;

pub use check::{Fault, Problem, check_section, shown};
pub use field::{DefaultValue, Field, KeyType, Kind, KindField, Schema};
pub use key_type::quoted;
pub use parsed::{Parsed, TextForm};
pub use pattern::matches;
pub use range::{Range, number_text};
pub use section::{Section, bare};
pub use value::{KeyValue, Written, toml_text};

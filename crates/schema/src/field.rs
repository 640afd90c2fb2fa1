//! The schema of a section as data: its keys with their types, and, where it has a `kind`, the keys of each kind.

use super::range::Range;

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum KeyType {
    /// A string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A string in a notation of its own.
    Parsed {
        /// The notation, for error messages.
        expected: &'static str,
        /// Checks a string; the error says what was expected and what was found.
        parse: fn(&str) -> Result<(), String>,
    },
    /// The same, or a list of numbers.
    ParsedOrNumbers {
        /// The notation, for error messages.
        expected: &'static str,
        /// Checks a string.
        parse: fn(&str) -> Result<(), String>,
    },
    /// An integer from 0 to this one.
    Count(u64),
    /// An integer or a float, finite.
    Number,
    /// `true` or `false`.
    Switch,
    /// `true`, `false` or `"auto"`.
    AutoSwitch,
    /// The given word, or a number.
    WordOrNumber(&'static str),
    /// A list of strings.
    Texts,
    /// A list of numbers.
    Numbers,
    /// A list of pairs of strings.
    Pairs,
    /// A list of pairs of integers from 0 to this one.
    CountPairs(u64),
    /// A list of tables, each with these keys.
    Tables(&'static Schema),
    /// A section with keys of its own.
    Section(&'static Schema),
}

/// What a key is where a recipe leaves it out.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// A recipe without the key is refused.
    Required,
    /// A value, as TOML.
    Value(fn() -> String),
    /// No single value: what happens then, in words.
    Words(&'static str),
}

/// One key of a section.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name within the section.
    pub name: &'static str,
    /// What it takes.
    pub value_type: KeyType,
    /// What it is where it is left out.
    pub default: DefaultValue,
    /// Which numbers it allows.
    pub range: Range,
    /// Whether a resumed run may change it, since it has no influence on what is computed.
    pub changeable: bool,
    /// Meaning and unit: the doc comment of the Rust field.
    pub doc: &'static str,
}

/// One kind of a section, such as `kind = "sgd"` of `[optimizer]`.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its word.
    pub name: &'static str,
    /// What it does: the doc comment of its settings.
    pub doc: &'static str,
    /// The keys that it has beside the section's own.
    pub fields: &'static [Field],
}

/// The key `kind` of a section.
#[derive(Clone, Copy, Debug)]
pub struct KindField {
    /// The key.
    pub field: Field,
    /// All kinds.
    pub kinds: &'static [Kind],
    /// Whether the keys of the kind stand before the section's own.
    pub first: bool,
}

/// The schema of a section.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// What the section is for: the doc comment of its struct.
    pub doc: &'static str,
    /// Its key `kind`, if it has one.
    pub kind: Option<KindField>,
    /// Its other keys.
    pub fields: &'static [Field],
}

impl Field {
    /// The default as text; `None` if the key is required.
    pub fn default_text(&self) -> Option<String> {
        match self.default {
            DefaultValue::Required => None,
            DefaultValue::Value(text) => Some(text()),
            DefaultValue::Words(words) => Some(words.into()),
        }
    }

    /// Whether a recipe without the key is refused.
    pub fn required(&self) -> bool {
        matches!(self.default, DefaultValue::Required)
    }
}

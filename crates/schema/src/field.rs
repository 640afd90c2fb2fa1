//! The schema of a section as data: its keys with their types and, if it has a `kind`, the keys of each kind.

#[derive(Clone, Copy, Debug)]
pub enum KeyType {
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A string in a notation of its own, such as `window(8)`.
    Parsed {
        /// Description of the notation for error messages.
        expected: &'static str,
        /// Checks a string. The error says what was expected and what was found.
        parse: fn(&str) -> Result<(), String>,
    },
    /// A string in a notation of its own, or a list of numbers.
    ParsedOrNumbers {
        /// Description of the notation for error messages.
        expected: &'static str,
        parse: fn(&str) -> Result<(), String>,
    },
    /// An integer from 0 to this maximum.
    Count(u64),
    /// An integer or a finite float.
    Number,
    Switch,
    /// `true`, `false` or `"auto"`.
    AutoSwitch,
    /// This word, or a finite number.
    WordOrNumber(&'static str),
    Texts,
    Numbers,
    /// A list of pairs of strings.
    Pairs,
    /// A list of pairs of integers from 0 to this maximum.
    CountPairs(u64),
    /// A list of tables with this schema.
    Tables(&'static Schema),
    Section(&'static Schema),
}

/// The value of a key that a recipe omits.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// A recipe without the key is invalid.
    Required,
    /// A fixed value, formatted as TOML.
    Value(fn() -> String),
    /// No fixed value. The text describes what happens.
    Words(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub value_type: KeyType,
    pub default: DefaultValue,
    pub range: Range,
    /// True if a resumed run may change the key, because it does not affect results.
    pub changeable: bool,
    /// Meaning and unit, from the doc comment of the Rust field.
    pub doc: &'static str,
}

/// A section's kind, such as `kind = "sgd"` for `[optimizer]`.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Description, from the doc comment of the kind's settings.
    pub doc: &'static str,
    /// The keys that it adds to the section's own keys.
    pub fields: &'static [Field],
}

/// The key `kind` of a section.
#[derive(Clone, Copy, Debug)]
pub struct KindField {
    pub field: Field,
    pub kinds: &'static [Kind],
    /// True if the kind's keys come before the section's own keys.
    pub first: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// Description, from the doc comment of the section's struct.
    pub doc: &'static str,
    /// The section's key `kind`, if it has one.
    pub kind: Option<KindField>,
    pub fields: &'static [Field],
}

impl Field {
    /// Returns the default as text, or `None` if the key is required.
    pub fn default_text(&self) -> Option<String> {
        match self.default {
            DefaultValue::Required => None,
            DefaultValue::Value(text) => Some(text()),
            DefaultValue::Words(words) => Some(words.into()),
        }
    }

    /// Returns true if a recipe without the key is invalid.
    pub fn required(&self) -> bool {
        matches!(self.default, DefaultValue::Required)
    }
}

// Descriptions of valid values, and the type check.

impl KeyType {
    /// Describes the valid values for an error message.
    pub fn expected(&self) -> String {
        match self {
            KeyType::Text => "a string".into(),
            KeyType::Choice(words) => format!("one of {}", quoted(words)),
            KeyType::Parsed { expected, .. } | KeyType::ParsedOrNumbers { expected, .. } => (*expected).into(),
            KeyType::Count(_) => "an integer >= 0".into(),
            KeyType::Number => "a finite number".into(),
            KeyType::Switch => "true or false".into(),
            KeyType::AutoSwitch => "true, false or \"auto\"".into(),
            KeyType::WordOrNumber(word) => format!("a finite number or \"{word}\""),
            KeyType::Texts => "a list of strings such as [\"a\", \"b\"]".into(),
            KeyType::Numbers => "a list of numbers such as [82, 123]".into(),
            KeyType::Pairs => "a list of pairs of strings such as [[\"a\", \"b\"]]".into(),
            KeyType::CountPairs(_) => "a list of pairs of integers >= 0 such as [[0, 128], [6, 160]]".into(),
            KeyType::Tables(schema) => format!("a list of tables with the keys {}", quoted(&names(schema))),
            KeyType::Section(_) => "a section".into(),
        }
    }

    /// Returns the allowed strings if they are a fixed set or have a notation.
    pub fn words(&self) -> Option<String> {
        match self {
            KeyType::Choice(words) => Some(quoted(words)),
            KeyType::Parsed { expected, .. } | KeyType::ParsedOrNumbers { expected, .. } => Some((*expected).into()),
            _ => None,
        }
    }

    /// Describes the valid values for a cell in a Markdown table. A range may follow.
    pub fn markdown(&self) -> String {
        match self {
            KeyType::Text => "string".into(),
            KeyType::Choice(words) => words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", "),
            KeyType::Parsed { expected, .. } | KeyType::ParsedOrNumbers { expected, .. } => (*expected).into(),
            KeyType::Count(_) => "integer".into(),
            KeyType::Number => "number".into(),
            KeyType::Switch => "`true`, `false`".into(),
            KeyType::AutoSwitch => "`true`, `false`, `\"auto\"`".into(),
            KeyType::WordOrNumber(word) => format!("`\"{word}\"` or a number"),
            KeyType::Texts => "list of strings".into(),
            KeyType::Numbers => "list of numbers".into(),
            KeyType::Pairs => "list of pairs of strings".into(),
            KeyType::CountPairs(_) => "list of pairs of integers".into(),
            KeyType::Tables(_) => "list of tables".into(),
            KeyType::Section(_) => "section".into(),
        }
    }

    /// Returns true if a TOML value has this type. Accepts any string for [`KeyType::Choice`] and [`KeyType::Parsed`],
    /// and any integer >= 0 for [`KeyType::Count`]. Whether the string or integer is valid is checked later, with a
    /// more specific message.
    pub fn accepts(&self, value: &toml::Value) -> bool {
        let number = |value: &toml::Value| value.is_integer() || value.as_float().is_some_and(f64::is_finite);
        match self {
            KeyType::Text | KeyType::Choice(_) | KeyType::Parsed { .. } => value.is_str(),
            KeyType::ParsedOrNumbers { .. } => value.is_str() || KeyType::Numbers.accepts(value),
            KeyType::Count(_) => value.as_integer().is_some_and(|n| n >= 0),
            KeyType::Number => number(value),
            KeyType::Switch => value.is_bool(),
            KeyType::AutoSwitch => value.is_bool() || value.as_str() == Some("auto"),
            KeyType::WordOrNumber(word) => number(value) || value.as_str() == Some(word),
            KeyType::Texts => value.as_array().is_some_and(|list| list.iter().all(|v| v.is_str())),
            KeyType::Numbers => value.as_array().is_some_and(|list| list.iter().all(number)),
            KeyType::Pairs => value.as_array().is_some_and(|list| list.iter().all(|v| is_pair_of(v, &KeyType::Text))),
            KeyType::CountPairs(most) => {
                value.as_array().is_some_and(|list| list.iter().all(|v| is_pair_of(v, &KeyType::Count(*most))))
            }
            KeyType::Tables(_) => value.as_array().is_some_and(|list| list.iter().all(|v| v.is_table())),
            KeyType::Section(_) => value.is_table(),
        }
    }
}

/// Returns true if a value is a list with two elements of this type.
fn is_pair_of(value: &toml::Value, each: &KeyType) -> bool {
    value.as_array().is_some_and(|pair| pair.len() == 2 && pair.iter().all(|v| each.accepts(v)))
}

/// Returns the names of all keys in a section.
pub fn names(schema: &Schema) -> Vec<&'static str> {
    schema.fields.iter().map(|field| field.name).collect()
}

/// Formats words as `"a", "b"`.
pub fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    words.join(", ")
}

/// The numbers that a key allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// All numbers of the key's type.
    Any,
    AtLeast(f64),
    /// From the first to the second number, inclusive.
    Between(f64, f64),
    /// At least 0, and finite in f32.
    NonNegativeF32,
    Positive,
    /// Positive and a normal number in f32, the type in which optimizers compute.
    PositiveF32,
    /// From 0 up to, but not including, 1.
    Fraction,
    /// From 0 to 1, both included.
    Probability,
    /// Between 0 and 1, both excluded. The value is an example for error messages.
    OpenFraction(f64),
}

/// Formats a number for messages. Very large numbers get an exponent.
pub fn number_text(number: f64) -> String {
    if number.abs() < 1e16 || !number.is_finite() { number.to_string() } else { format!("{number:e}") }
}

impl Range {
    /// Formats the range, such as `>= 1` or `in [0, 1)`. Empty for [`Range::Any`].
    pub fn text(&self) -> String {
        match self {
            Range::Any => String::new(),
            Range::AtLeast(least) => format!(">= {least}"),
            Range::Between(least, most) => format!("from {least} to {most}"),
            Range::NonNegativeF32 => ">= 0".into(),
            Range::Positive | Range::PositiveF32 => "> 0".into(),
            Range::Fraction => "in [0, 1)".into(),
            Range::Probability => "in [0, 1]".into(),
            Range::OpenFraction(_) => "in (0, 1)".into(),
        }
    }

    /// Checks a number. The error describes the allowed range.
    pub fn check(&self, got: f64) -> Result<(), String> {
        let inside = match self {
            Range::Any => true,
            Range::AtLeast(least) => got >= *least,
            Range::Between(least, most) => (*least..=*most).contains(&got),
            Range::NonNegativeF32 => got >= 0.0,
            Range::Positive | Range::PositiveF32 => got > 0.0,
            Range::Fraction => (0.0..1.0).contains(&got),
            Range::Probability => (0.0..=1.0).contains(&got),
            Range::OpenFraction(_) => got > 0.0 && got < 1.0,
        };
        let shown = number_text(got);
        match self {
            Range::OpenFraction(example) if !inside => {
                Err(format!("must be {}, for example {example}, got {shown}", self.text()))
            }
            _ if !inside => Err(format!("must be {}, got {shown}", self.text())),
            Range::NonNegativeF32 if got > f64::from(f32::MAX) => {
                Err(format!("must be at most {:e}, the largest f32, got {got:e}", f32::MAX))
            }
            // a smaller number would become 0 in f32
            Range::PositiveF32 if !(f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&got) => {
                Err(format!("must be from {:e} to {:e}, the range of f32, got {got:e}", f32::MIN_POSITIVE, f32::MAX))
            }
            _ => Ok(()),
        }
    }
}

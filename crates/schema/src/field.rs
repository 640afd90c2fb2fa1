//! The schema of a section as data: its keys with their types, and, where it has a `kind`, the keys of each kind.

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

// What a key takes, in words and as a check.

impl KeyType {
    /// What the key takes, in words, for an error message.
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
            KeyType::Texts => "a list of strings, as [\"a\", \"b\"]".into(),
            KeyType::Numbers => "a list of numbers, as [82, 123]".into(),
            KeyType::Pairs => "a list of pairs of strings, as [[\"a\", \"b\"]]".into(),
            KeyType::CountPairs(_) => "a list of pairs of integers >= 0, as [[0, 128], [6, 160]]".into(),
            KeyType::Tables(schema) => format!("a list of tables with the keys {}", quoted(&names(schema))),
            KeyType::Section(_) => "a section".into(),
        }
    }

    /// The strings that are allowed, if they are a closed set or have a notation.
    pub fn words(&self) -> Option<String> {
        match self {
            KeyType::Choice(words) => Some(quoted(words)),
            KeyType::Parsed { expected, .. } | KeyType::ParsedOrNumbers { expected, .. } => Some((*expected).into()),
            _ => None,
        }
    }

    /// What the key takes, for a cell of a Markdown table; a range may follow it.
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

    /// Whether a TOML value has this type. Any string is accepted for [`KeyType::Choice`] and [`KeyType::Parsed`], and any
    /// integer >= 0 for [`KeyType::Count`]: which of them are valid is checked afterwards, with an error message of its own.
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

/// Whether a value is a list of two of this type.
fn is_pair_of(value: &toml::Value, each: &KeyType) -> bool {
    value.as_array().is_some_and(|pair| pair.len() == 2 && pair.iter().all(|v| each.accepts(v)))
}

/// Names of all keys of a section.
pub fn names(schema: &Schema) -> Vec<&'static str> {
    schema.fields.iter().map(|field| field.name).collect()
}

/// `"a", "b"`.
pub fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    words.join(", ")
}

// The range of a numeric key.

/// Which numbers a key allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// All that its type holds.
    Any,
    /// This number or more.
    AtLeast(f64),
    /// From the first to the second.
    Between(f64, f64),
    /// 0 or more, and a number that f32 holds.
    NonNegativeF32,
    /// More than 0.
    Positive,
    /// More than 0 and a normal number in f32, in which the optimizers compute.
    PositiveF32,
    /// From 0 to below 1.
    Fraction,
    /// From 0 to 1.
    Probability,
    /// Between 0 and 1, both excluded; with an example for error messages.
    OpenFraction(f64),
}

/// A number in a message: a huge one with its power of ten.
pub fn number_text(number: f64) -> String {
    if number.abs() < 1e16 || !number.is_finite() { number.to_string() } else { format!("{number:e}") }
}

impl Range {
    /// `>= 1`, `in [0, 1)`; empty for [`Range::Any`].
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

    /// Checks a number; the error says what it must be.
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
                Err(format!("must be {}, as {example}, got {shown}", self.text()))
            }
            _ if !inside => Err(format!("must be {}, got {shown}", self.text())),
            Range::NonNegativeF32 if got > f64::from(f32::MAX) => {
                Err(format!("must be a number that f32 holds, got {got:e}"))
            }
            // a smaller one would become 0 in f32
            Range::PositiveF32 if !(f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&got) => {
                Err(format!("must be a number that f32 holds, got {got:e}"))
            }
            _ => Ok(()),
        }
    }
}

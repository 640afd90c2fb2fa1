//! What a key takes, in words and as a check.

use super::field::{KeyType, Schema};

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

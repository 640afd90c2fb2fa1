//! Checks a section's TOML against its schema: keys that belong to its kind, types, words and ranges.

use base::text::did_you_mean;
use toml::{Table, Value};

use super::field::Range;
use super::field::{Field, KeyType, Kind, KindField, Schema};
use super::field::{names, quoted};

#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Name of the key within its section.
    pub key: &'static str,
    /// The expected and the found value, and a remedy.
    pub why: String,
}

/// Checks every key of a section. Ignores keys that are not in the schema.
pub fn check_section(schema: &Schema, table: &Table) -> Result<(), Fault> {
    let of_kind = match &schema.kind {
        Some(kind) => check_kind(kind, table)?,
        None => &[],
    };
    schema.fields.iter().chain(of_kind).try_for_each(|field| check_field(field, table.get(field.name)))
}

/// Returns the keys of the kind that the table names. Empty if the table names no kind and need not name one. Returns
/// an error if a required kind is missing, if the kind is unknown, or if the table has keys that belong only to other
/// kinds.
fn check_kind(key: &KindField, table: &Table) -> Result<&'static [Field], Fault> {
    let value = table.get(key.field.name);
    check_field(&key.field, value)?;
    let Some(kind) = key.kinds.iter().find(|kind| Some(kind.name) == value.and_then(Value::as_str)) else {
        return Ok(&[]);
    };
    for field in key.kinds.iter().flat_map(|other| other.fields).filter(|field| table.contains_key(field.name)) {
        if !kind.fields.iter().any(|own| own.name == field.name) {
            let has = |kind: &&Kind| kind.fields.iter().any(|own| own.name == field.name);
            let owners: Vec<&str> = key.kinds.iter().filter(has).map(|kind| kind.name).collect();
            let why = format!("belongs to kind {}, but kind = \"{}\"; remove this key", owners.join(" or "), kind.name);
            return Err(Fault { key: field.name, why });
        }
    }
    Ok(kind.fields)
}

fn check_field(field: &Field, value: Option<&Value>) -> Result<(), Fault> {
    let fault = |why| Err(Fault { key: field.name, why });
    let expected = || match (&field.value_type, field.range) {
        // also name the range, so that the user learns about type and range from one message
        (KeyType::Count(_), Range::AtLeast(_)) => format!("an integer {}", field.range.text()),
        (value_type, _) => value_type.expected(),
    };
    match value {
        None if field.required() => {
            fault(format!("this required key is missing; expected {}: {}", expected(), field.doc.trim()))
        }
        None => Ok(()),
        Some(Value::String(digits)) if is_beyond_integers(field.value_type, digits) => {
            fault(format!("{digits} is too large; an integer is at most {}", i64::MAX))
        }
        Some(value) if !field.value_type.accepts(value) => {
            fault(format!("expected {}, got {}", expected(), describe_value(value)))
        }
        Some(value) => check_value(field, value).or_else(fault),
    }
}

/// Returns true if the value of a `--set` for a numeric key is an integer that is too large for TOML. Such values are
/// passed as strings.
fn is_beyond_integers(key: KeyType, text: &str) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(key, KeyType::Count(_) | KeyType::Number) && digits && text.parse::<i64>().is_err()
}

/// Checks a value that has the key's type.
fn check_value(field: &Field, value: &Value) -> Result<(), String> {
    match (&field.value_type, value) {
        (KeyType::Choice(words), Value::String(word)) if !words.contains(&word.as_str()) => {
            Err(format!("unknown value \"{word}\", expected one of {}{}", quoted(words), did_you_mean(word, words)))
        }
        (KeyType::Parsed { parse, .. } | KeyType::ParsedOrNumbers { parse, .. }, Value::String(text)) => parse(text),
        (KeyType::Tables(schema), Value::Array(tables)) => (1..)
            .zip(tables.iter().filter_map(Value::as_table))
            .try_for_each(|(number, table)| check_table(schema, table).map_err(|why| format!("table {number}: {why}"))),
        (KeyType::Count(most), Value::Integer(number)) => {
            within(*number, *most).and_then(|()| field.range.check(*number as f64))
        }
        (KeyType::CountPairs(most), Value::Array(pairs)) => {
            let mut numbers = pairs.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_integer);
            numbers.try_for_each(|number| within(number, *most))
        }
        (_, Value::Integer(number)) => field.range.check(*number as f64),
        (_, Value::Float(number)) => field.range.check(*number),
        _ => Ok(()),
    }
}

/// Returns an error if an integer is larger than the key's type can hold.
fn within(number: i64, most: u64) -> Result<(), String> {
    match u64::try_from(number) {
        Ok(large) if large > most => Err(format!("must be <= {most}, got {number}")),
        _ => Ok(()),
    }
}

/// Checks a table in a list of tables: all its keys must be in the schema and valid.
fn check_table(schema: &Schema, table: &Table) -> Result<(), String> {
    let known = names(schema);
    if let Some(odd) = table.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("unknown key \"{odd}\", expected one of {}{}", quoted(&known), did_you_mean(odd, &known)));
    }
    check_section(schema, table).map_err(|fault| format!("{}: {}", fault.key, fault.why))
}

/// Formats a value for messages: shortened, and with its type if the text alone could be misleading.
pub fn describe_value(value: &Value) -> String {
    let mut text = value.to_string();
    if text.chars().count() > 60 {
        text = text.chars().take(57).collect::<String>() + "...";
    }
    match value {
        Value::String(_) => format!("the string {text}"),
        Value::Table(_) => "a section".into(),
        _ => text,
    }
}

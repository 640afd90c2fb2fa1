//! TOML with the line of every value, and errors that name the file, the line and the node.

use std::collections::BTreeMap;
use std::ops::Range;

use base::text::printable;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub line: usize,
    pub kind: Kind,
}

pub(crate) type Table = BTreeMap<String, Value>;

/// TOML's types without dates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Text(String),
    Integer(i64),
    Float(f64),
    Switch(bool),
    List(Vec<Value>),
    Table(Table),
}

pub(crate) fn parse(text: &str) -> Result<Table, Fault> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.at(&span));
        Fault::new(line, format!("not valid TOML: {}", error.message()))
    })?;
    lines.table(table.get_ref())
}

/// The offset of each line in a text.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    fn at(&self, span: &Range<usize>) -> usize {
        self.0.partition_point(|begin| *begin <= span.start)
    }

    fn table(&self, table: &DeTable<'_>) -> Result<Table, Fault> {
        let entries = table.iter().map(|(key, value)| {
            let value = self.value(self.at(&value.span()), value.get_ref())?;
            Ok((key.get_ref().to_string(), value))
        });
        entries.collect()
    }

    fn value(&self, line: usize, value: &DeValue<'_>) -> Result<Value, Fault> {
        let refuse = |what: &str| Err(Fault::new(line, format!("{what} is not allowed in a network")));
        let kind = match value {
            DeValue::String(text) => Kind::Text(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Kind::Integer(number),
                Err(_) => return refuse(&format!("the integer {number}, which has more than 64 bits,")),
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Kind::Float(number),
                _ => return refuse(&format!("the number {number}, which is not finite,")),
            },
            DeValue::Boolean(switch) => Kind::Switch(*switch),
            DeValue::Datetime(_) => return refuse("a date"),
            DeValue::Array(list) => {
                let each = list.iter().map(|value| self.value(self.at(&value.span()), value.get_ref()));
                Kind::List(each.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Kind::Table(self.table(table)?),
        };
        Ok(Value { line, kind })
    }
}

impl Value {
    /// Formats the value for messages.
    pub fn shown(&self) -> String {
        match &self.kind {
            Kind::Text(text) => format!("\"{text}\""),
            Kind::Integer(number) => number.to_string(),
            Kind::Float(number) => number.to_string(),
            Kind::Switch(switch) => switch.to_string(),
            Kind::List(list) => format!("[{}]", list.iter().map(Self::shown).collect::<Vec<_>>().join(", ")),
            Kind::Table(_) => "a table".into(),
        }
    }

    /// Returns the string, or an error if the value has another type.
    pub fn text(&self) -> Result<&str, Fault> {
        match &self.kind {
            Kind::Text(text) => Ok(text),
            _ => Err(self.unlike("a string")),
        }
    }

    /// Returns the table, or an error if the value has another type.
    pub fn table(&self) -> Result<&Table, Fault> {
        match &self.kind {
            Kind::Table(table) => Ok(table),
            _ => Err(self.unlike("a table")),
        }
    }

    /// Returns the list, or an error if the value has another type.
    pub fn list(&self) -> Result<&[Self], Fault> {
        match &self.kind {
            Kind::List(list) => Ok(list),
            _ => Err(self.unlike("a list")),
        }
    }

    /// Returns the integer if it is from `least` to `most`, otherwise an error.
    pub fn count(&self, least: usize, most: usize) -> Result<usize, Fault> {
        let number = match self.kind {
            Kind::Integer(number) => usize::try_from(number).ok().filter(|n| (least..=most).contains(n)),
            _ => None,
        };
        number.ok_or_else(|| self.unlike(&format!("an integer from {least} to {most}")))
    }

    /// Returns the error for a value that is not as expected.
    fn unlike(&self, expected: &str) -> Fault {
        Fault::new(self.line, format!("expected {expected}, got {}", self.shown()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{why}", node_text(.node))]
pub struct Error {
    pub file: String,
    /// Line number, counted from 1.
    pub line: usize,
    /// Full name of the node, or empty if no node is concerned.
    pub node: String,
    /// The problem, and what to try.
    pub why: String,
}

fn node_text(node: &str) -> String {
    if node.is_empty() { String::new() } else { format!("node {node}: ") }
}

/// An error in a line of a file whose name is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub line: usize,
    pub node: String,
    pub why: String,
}

impl Fault {
    /// Creates an error that concerns no node.
    pub fn new(line: usize, why: impl Into<String>) -> Self {
        Self { line, node: String::new(), why: why.into() }
    }

    /// Creates an error that concerns a node.
    pub fn of_node(line: usize, node: &str, why: impl Into<String>) -> Self {
        Self { line, node: node.into(), why: why.into() }
    }

    /// Adds the node's name, unless the error already has one.
    pub fn in_node(self, node: &str) -> Self {
        if self.node.is_empty() { Self { node: node.into(), ..self } } else { self }
    }

    pub fn in_file(self, file: &str) -> Error {
        let Self { line, node, why } = self;
        // both strings may contain names from the file, which must be safe to print
        Error { file: file.into(), line, node: printable(&node).into(), why: printable(&why).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_values_have_their_line_number() {
        let table = parse("a = 1\n\nb = [\n  \"x\",\n  { c = 0x10, d = 1.5 },\n]\n[e]\nf = true\n").unwrap();
        let of = |table: &Table, key: &str| table[key].line;
        assert_eq!((of(&table, "a"), of(&table, "b"), of(&table, "e")), (1, 3, 7));
        let list = table["b"].list().unwrap();
        assert_eq!((list[0].line, list[1].line), (4, 5));
        let inner = list[1].table().unwrap();
        assert_eq!((inner["c"].count(1, 16), &inner["d"].kind), (Ok(16), &Kind::Float(1.5)));
        assert_eq!(table["e"].table().unwrap()["f"].line, 8);
    }

    #[test]
    fn syntax_errors_have_their_line_number() {
        assert_eq!(parse("a = 1\nb = = 2\n").unwrap_err().line, 2);
        assert_eq!(parse("a = 1\na = 2\n").unwrap_err().line, 2);
        assert_eq!(parse("\n\na = nan\n").unwrap_err().line, 3);
        assert_eq!(parse("a = 2026-11-22\n").unwrap_err().line, 1);
        assert_eq!(parse("a = 99999999999999999999\n").unwrap_err().line, 1);
    }
}

//! Parameters of blocks in place of `"$name"`, within limits: blocks in blocks can name a value so often that no memory holds it.

use loaders::text::did_you_mean;

use super::error::Fault;
use super::value::{Kind, Table, Value};

/// Most values of all nodes together, those of their blocks included.
const MOST_VALUES: usize = 1_000_000;

/// Bytes of a text that count as one value more.
const TEXT: usize = 64;

/// How many values may be copied yet.
pub(super) struct Room(usize);

impl Room {
    pub fn new() -> Self {
        Self(MOST_VALUES)
    }

    /// Takes room for a copy that a line makes.
    fn take(&mut self, line: usize, size: usize) -> Result<(), Fault> {
        let left = self.0.checked_sub(size);
        let wrong = || Fault::new(line, format!("more than {MOST_VALUES} values, once each block is written out"));
        self.0 = left.ok_or_else(wrong)?;
        Ok(())
    }

    /// A copy of a table for a block in a line.
    pub fn copy(&mut self, line: usize, table: &Table) -> Result<Table, Fault> {
        self.take(line, all(table))?;
        Ok(table.clone())
    }

    /// The keys of an entry with its block's parameters in place of `"$name"`.
    pub fn fill_in(&mut self, keys: &Table, parameters: &Table) -> Result<Table, Fault> {
        keys.iter().map(|(key, value)| Ok((key.clone(), self.filled(value, parameters)?))).collect()
    }

    fn filled(&mut self, value: &Value, parameters: &Table) -> Result<Value, Fault> {
        let line = value.line;
        let kind = match &value.kind {
            Kind::List(list) => {
                self.take(line, 1)?;
                Kind::List(list.iter().map(|value| self.filled(value, parameters)).collect::<Result<_, _>>()?)
            }
            Kind::Table(table) => {
                self.take(line, 1)?;
                Kind::Table(self.fill_in(table, parameters)?)
            }
            Kind::Text(text) if text.starts_with('$') => {
                let found = parameter(line, &text[1..], parameters)?;
                self.take(line, size(found))?;
                return Ok(found.clone());
            }
            _ => {
                self.take(line, size(value))?;
                return Ok(value.clone());
            }
        };
        Ok(Value { line, kind })
    }
}

/// The value of a parameter that a line names.
fn parameter<'a>(line: usize, name: &str, parameters: &'a Table) -> Result<&'a Value, Fault> {
    parameters.get(name).ok_or_else(|| {
        let known: Vec<&str> = parameters.keys().map(String::as_str).collect();
        let hint = did_you_mean(name, &known);
        Fault::new(line, format!("${name} has no value: give {name} where the block stands, or in its defaults{hint}"))
    })
}

/// A value with all that is in it.
fn size(value: &Value) -> usize {
    let inside = match &value.kind {
        Kind::Text(text) => text.len() / TEXT,
        Kind::List(list) => list.iter().map(size).sum(),
        Kind::Table(table) => all(table),
        _ => 0,
    };
    1 + inside
}

fn all(table: &Table) -> usize {
    table.iter().map(|(key, value)| key.len() / TEXT + size(value)).sum()
}

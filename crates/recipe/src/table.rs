//! Values of a recipe's table at paths such as `optimizer.momentum`.

use toml::{Table, Value};

/// Puts a value there; its section is made if it is not there.
pub(super) fn insert(table: &mut Table, path: &str, value: Value) {
    let Some((section, name)) = path.split_once('.') else {
        table.insert(path.to_string(), value);
        return;
    };
    let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(inner) = inner {
        inner.insert(name.to_string(), value);
    }
}

/// The value at a path such as `optimizer.momentum`.
pub(super) fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((section, name)) => table.get(section)?.as_table()?.get(name),
        None => table.get(path),
    }
}

/// Takes the value out.
pub(super) fn remove(table: &mut Table, path: &str) -> Option<Value> {
    match path.split_once('.') {
        Some((section, name)) => table.get_mut(section)?.as_table_mut()?.remove(name),
        None => table.remove(path),
    }
}

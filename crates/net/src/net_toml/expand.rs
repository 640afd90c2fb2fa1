//! Expands nodes and blocks to a flat list of nodes: replaces blocks by their nodes, writes out repetitions, and
//! resolves the names of inputs.

use std::collections::BTreeMap;

use base::text::did_you_mean;

use super::file::{Block, Entry, File, INPUT};
use crate::op::toml_value::Fault;
use crate::op::toml_value::{Kind, Table, Value};
use crate::{Id, LONGEST_PATH};

/// A node of the whole network.
#[derive(Clone, Debug)]
pub(super) struct Flat {
    /// The full path: the names of all blocks around it, and its own name.
    pub name: String,
    /// The node's line in the file. For a node of a block, the line in the definition of the block.
    pub line: usize,
    pub inputs: Vec<Id>,
    /// The node's keys: its operation and all its numbers.
    pub keys: Table,
}

/// Maximum number of nodes. Random draws have only 15 bits to identify their layer.
const MOST_NODES: usize = 10_000;

/// Maximum nesting depth of blocks.
const DEEPEST: usize = 32;

/// Keys of a block entry that are not parameters of the block.
const OWN: [&str; 4] = ["block", "first", "inputs", "repeat"];

/// Expands the nodes of a file.
pub(super) fn expand(file: &File) -> Result<Vec<Flat>, Fault> {
    let mut expansion =
        Expansion { file, flat: Vec::new(), lines: BTreeMap::new(), open: Vec::new(), room: Room::new() };
    expansion.list(&file.nodes, &Scope { path: "", inputs: &[Id(0)], parameters: &Table::new() })?;
    Ok(expansion.flat)
}

/// Context of a list of nodes.
struct Scope<'a> {
    /// Path of the block, or empty for the network itself.
    path: &'a str,
    /// Inputs of the block, at least one.
    inputs: &'a [Id],
    parameters: &'a Table,
}

struct Expansion<'a> {
    file: &'a File,
    flat: Vec<Flat>,
    lines: BTreeMap<String, usize>,
    /// Names of the blocks being expanded, outermost first.
    open: Vec<&'a str>,
    room: Room,
}

impl<'a> Expansion<'a> {
    /// Expands a list and returns the output of its last node.
    fn list(&mut self, entries: &'a [Entry], scope: &Scope<'_>) -> Result<Id, Fault> {
        let mut made: BTreeMap<&str, Id> = BTreeMap::new();
        let mut last = scope.inputs[0];
        for (at, entry) in entries.iter().enumerate() {
            let name = path(scope.path, &entry.name);
            let in_node = |fault: Fault| fault.in_node(&name);
            if name.len() > LONGEST_PATH {
                return Err(Fault::new(
                    entry.line,
                    format!("the path {name} is longer than {LONGEST_PATH} characters"),
                ));
            }
            let inputs = inputs(entries, at, scope, &made, last).map_err(in_node)?;
            let keys = self.room.fill_in(&entry.keys, scope.parameters).map_err(in_node)?;
            last = match keys.contains_key("block") {
                true => self.blocks(&name, entry.line, inputs, &keys).map_err(in_node)?,
                false => self.node(name, entry.line, inputs, keys)?,
            };
            made.insert(&entry.name, last);
        }
        Ok(last)
    }

    fn node(&mut self, name: String, line: usize, inputs: Vec<Id>, mut keys: Table) -> Result<Id, Fault> {
        if self.flat.len() == MOST_NODES {
            return Err(Fault::of_node(
                line,
                &name,
                format!("the network has more than {MOST_NODES} nodes, which is the limit"),
            ));
        }
        // a name with a dot can equal the name of a node in a block
        if let Some(other) = self.lines.insert(name.clone(), line) {
            let why = format!("the node in line {other} has the same full name; rename one of them");
            return Err(Fault::of_node(line, &name, why));
        }
        keys.remove("inputs");
        self.flat.push(Flat { name, line, inputs, keys });
        Ok(Id(self.flat.len()))
    }

    /// Expands the repetitions of a block. The first input of each repetition is the output of the previous one. Its
    /// other inputs are the same.
    fn blocks(&mut self, name: &str, line: usize, mut inputs: Vec<Id>, keys: &Table) -> Result<Id, Fault> {
        let repeat = keys.get("repeat").map(|n| n.count(1, MOST_NODES)).transpose()?;
        let first = keys.get("first").map(Value::table).transpose()?;
        if let Some(odd) =
            first.and_then(|first| first.iter().find(|(key, _)| ["first", "inputs", "repeat"].contains(&key.as_str())))
        {
            return Err(Fault::new(
                odd.1.line,
                format!("first cannot contain {}, which is the same for all repetitions", odd.0),
            ));
        }
        for turn in 0..repeat.unwrap_or(1) {
            let mut keys = self.room.copy(line, keys)?;
            if turn == 0 {
                keys.extend(first.map(|first| self.room.copy(line, first)).transpose()?.unwrap_or_default());
            }
            let path = if repeat.is_some() { format!("{name}.{turn}") } else { name.to_string() };
            inputs[0] = self.block(&path, line, &inputs, keys)?;
        }
        Ok(inputs[0])
    }

    fn block(&mut self, path: &str, line: usize, inputs: &[Id], mut keys: Table) -> Result<Id, Fault> {
        let word = keys.get("block").map_or(Ok(""), Value::text)?.to_string();
        let names: Vec<&str> = self.file.blocks.keys().map(String::as_str).collect();
        let Some((name, block)) = self.file.blocks.get_key_value(&word) else {
            let has = if names.is_empty() {
                "the file has no [blocks]".into()
            } else {
                format!("the blocks are {}", names.join(", "))
            };
            return Err(Fault::new(line, format!("no block \"{word}\": {has}{}", did_you_mean(&word, &names))));
        };
        if let Some(from) = self.open.iter().position(|open| open == name) {
            let way = self.open[from..].join(" -> ");
            return Err(Fault::new(line, format!("blocks contain each other: {way} -> {name}")));
        }
        if self.open.len() == DEEPEST {
            return Err(Fault::new(line, format!("blocks are nested more than {DEEPEST} levels deep")));
        }
        keys.retain(|key, _| !OWN.contains(&key.as_str()));
        check(name, block, &keys)?;
        let mut parameters = self.room.copy(line, &block.defaults)?;
        parameters.extend(keys);
        self.open.push(name);
        let last = self.list(&block.nodes, &Scope { path, inputs, parameters: &parameters })?;
        self.open.pop();
        Ok(last)
    }
}

fn path(block: &str, name: &str) -> String {
    if block.is_empty() { name.to_string() } else { format!("{block}.{name}") }
}

/// Returns the inputs named by the entry at `at`. If it names no inputs, returns `last`: the output of the previous
/// entry or, for the first entry, the block's first input.
fn inputs(
    entries: &[Entry],
    at: usize,
    scope: &Scope<'_>,
    made: &BTreeMap<&str, Id>,
    last: Id,
) -> Result<Vec<Id>, Fault> {
    let Some(named) = entries[at].keys.get("inputs") else { return Ok(vec![last]) };
    let one = |value: &Value| {
        let name = value.text()?;
        if let Some(id) = made.get(name).copied().or_else(|| outer(name, scope.inputs)) {
            return Ok(id);
        }
        let why = match entries.iter().position(|entry| entry.name == name) {
            Some(to) => explain(entries, at, to),
            None => {
                let known: Vec<&str> = [INPUT].into_iter().chain(entries.iter().map(|e| e.name.as_str())).collect();
                let place = if scope.path.is_empty() { "the network" } else { "its block" };
                format!("it reads \"{name}\", but {place} has no such node{}", did_you_mean(name, &known))
            }
        };
        Err(Fault::new(value.line, why))
    };
    let inputs: Vec<Id> = named.list()?.iter().map(one).collect::<Result<_, _>>()?;
    match inputs.is_empty() {
        true => Err(Fault::new(named.line, "its list of inputs is empty; remove the list to read the previous node")),
        false => Ok(inputs),
    }
}

/// Looks up `input`, `input2` and so on, which are the inputs of the block or of the network.
fn outer(name: &str, inputs: &[Id]) -> Option<Id> {
    let number = match name.strip_prefix(INPUT)? {
        "" => 1,
        number => number.parse::<usize>().ok().filter(|n| *n > 1)?,
    };
    inputs.get(number - 1).copied()
}

/// Returns an error if a key in `given` is not a parameter of the block.
fn check(name: &str, block: &Block, given: &Table) -> Result<(), Fault> {
    let mut known: Vec<&str> = block.defaults.keys().map(String::as_str).collect();
    block.nodes.iter().for_each(|node| node.keys.values().for_each(|value| named_in(value, &mut known)));
    if let Some((key, value)) = given.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        let hint = match did_you_mean(key, &known) {
            near if near.is_empty() && known.is_empty() => "; it has none".into(),
            near if near.is_empty() => format!("; it has {}", known.join(", ")),
            near => near,
        };
        return Err(Fault::new(value.line, format!("block {name} has no parameter {key}{hint}")));
    }
    Ok(())
}

/// Adds the names of the parameters that a value refers to.
fn named_in<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
    match &value.kind {
        Kind::Text(text) => names.extend(text.strip_prefix('$').filter(|name| !names.contains(name))),
        Kind::List(list) => list.iter().for_each(|value| named_in(value, names)),
        Kind::Table(table) => table.values().for_each(|value| named_in(value, names)),
        _ => {}
    }
}

// Replaces each reference `"$name"` by the value of the block's parameter, within limits: nested blocks can repeat a
// value so often that it does not fit into memory.

/// Maximum number of values that the expansion of all nodes and blocks of a file may copy in total.
const MOST_VALUES: usize = 1_000_000;

/// Number of bytes of a text or key that count as one additional value.
const TEXT: usize = 64;

/// The number of values that may still be copied.
pub(super) struct Room(usize);

impl Room {
    pub fn new() -> Self {
        Self(MOST_VALUES)
    }

    /// Subtracts the size of a copy that an entry in this line needs.
    fn take(&mut self, line: usize, size: usize) -> Result<(), Fault> {
        let left = self.0.checked_sub(size);
        let wrong = || Fault::new(line, format!("more than {MOST_VALUES} values after the expansion of all blocks"));
        self.0 = left.ok_or_else(wrong)?;
        Ok(())
    }

    /// Copies a table for a block used in this line.
    pub fn copy(&mut self, line: usize, table: &Table) -> Result<Table, Fault> {
        self.take(line, all(table))?;
        Ok(table.clone())
    }

    /// Copies the keys of an entry and replaces `"$name"` by the block's parameters.
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

/// Looks up the parameter that a line refers to.
fn parameter<'a>(line: usize, name: &str, parameters: &'a Table) -> Result<&'a Value, Fault> {
    parameters.get(name).ok_or_else(|| {
        let known: Vec<&str> = parameters.keys().map(String::as_str).collect();
        let hint = did_you_mean(name, &known);
        Fault::new(line, format!("${name} has no value; set {name} where the block is used or in its defaults{hint}"))
    })
}

/// Returns the number of values in a value, including nested ones. A long text counts as more than one value, see
/// [`TEXT`].
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

// References to later nodes: a cycle, or a wrong order.

/// Explains why the entry at `from` cannot read `name`, which comes later in the same list, at `to`.
pub(super) fn explain(entries: &[Entry], from: usize, to: usize) -> String {
    let (own, other) = (&entries[from], &entries[to]);
    match way(entries, to, from) {
        Some(way) => {
            let names: Vec<&str> = way.iter().map(|&at| entries[at].name.as_str()).collect();
            format!(
                "a cycle: it reads {}, which depends on it ({} -> {}); it may only read earlier nodes",
                other.name,
                names.join(" -> "),
                own.name
            )
        }
        None => format!(
            "it reads {}, which comes later, in line {}; move that node before this one",
            other.name, other.line
        ),
    }
}

/// Returns the entries through which the output of `start` depends on `end`. The list begins with `start` and does not
/// include `end`, unless they are the same.
fn way(entries: &[Entry], start: usize, end: usize) -> Option<Vec<usize>> {
    if start == end {
        return Some(vec![start]);
    }
    let mut before: Vec<Option<usize>> = vec![None; entries.len()];
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        if at == end {
            let mut way = Vec::new();
            let mut step = before[end];
            while let Some(at) = step {
                way.push(at);
                step = if at == start { None } else { before[at] };
            }
            way.reverse();
            return Some(way);
        }
        for next in read_by(entries, at) {
            if next != start && before[next].is_none() {
                before[next] = Some(at);
                open.push(next);
            }
        }
    }
    None
}

/// Returns the entries of the same list that an entry reads.
fn read_by(entries: &[Entry], at: usize) -> Vec<usize> {
    match entries[at].keys.get("inputs") {
        Some(Value { kind: Kind::List(inputs), .. }) => {
            let place = |input: &Value| entries.iter().position(|entry| input.text() == Ok(entry.name.as_str()));
            inputs.iter().filter_map(place).collect()
        }
        _ => at.checked_sub(1).into_iter().collect(),
    }
}

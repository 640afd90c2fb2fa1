//! The parts of a file: the images and classes that the network is meant for, its nodes, and blocks of nodes.

use std::collections::BTreeMap;

use loaders::text::did_you_mean;

use super::value::{Fault, Table, Value, parse};
use crate::{LONGEST_PATH, Shape};

/// A file, its nodes not yet looked into.
pub(super) struct File {
    /// The images that the network is meant for.
    pub input: Shape,
    /// The number of classes that it is meant for.
    pub classes: usize,
    /// Its nodes and blocks in their order.
    pub nodes: Vec<Entry>,
    /// Blocks by their names.
    pub blocks: BTreeMap<String, Block>,
}

/// A node, or a block in the place of nodes.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub line: usize,
    /// Its name within its block.
    pub name: String,
    /// All other keys.
    pub keys: Table,
}

/// Nodes with parameters.
pub(super) struct Block {
    /// Values of parameters that are not given.
    pub defaults: Table,
    pub nodes: Vec<Entry>,
}

/// Largest height, width and number of channels of an image.
const LARGEST: usize = 1 << 16;

/// Largest number of classes.
const MOST_CLASSES: usize = 1 << 20;

/// What nodes read that read no other: the image, or what the block reads; further inputs of a block are `input2` and so on.
pub(super) const INPUT: &str = "input";

impl File {
    /// Reads a text.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let table = parse(text)?;
        only(&table, &["input", "classes", "nodes", "blocks"])?;
        let missing = |key: &str, example: &str| Fault::new(1, format!("{key} is missing; write {example}"));
        let input = table.get("input").ok_or_else(|| missing("input", "input = [3, 32, 32], which the images have"))?;
        let classes = table.get("classes").ok_or_else(|| missing("classes", "classes = 10"))?;
        let nodes =
            table.get("nodes").ok_or_else(|| missing("nodes", "nodes = [{ name = \"conv1\", op = \"conv\", ... }]"))?;
        let blocks = table.get("blocks").map(Value::table).transpose()?;
        let blocks = blocks.into_iter().flatten().map(|(name, block)| Ok((name.clone(), Block::read(block)?)));
        Ok(Self {
            input: shape(input)?,
            classes: classes.count(1, MOST_CLASSES)?,
            nodes: entries(nodes)?,
            blocks: blocks.collect::<Result<_, Fault>>()?,
        })
    }
}

impl Block {
    fn read(value: &Value) -> Result<Self, Fault> {
        let table = value.table()?;
        only(table, &["nodes", "defaults"])?;
        let nodes = table.get("nodes").ok_or_else(|| Fault::new(value.line, "the block has no nodes"))?;
        let defaults = table.get("defaults").map(Value::table).transpose()?.cloned().unwrap_or_default();
        Ok(Self { defaults, nodes: entries(nodes)? })
    }
}

fn shape(value: &Value) -> Result<Shape, Fault> {
    let sizes: Vec<usize> = value.list()?.iter().map(|n| n.count(1, LARGEST)).collect::<Result<_, _>>()?;
    match sizes[..] {
        [c, h, w] => Ok(Shape::image(c, h, w)),
        _ => Err(Fault::new(value.line, "expected channels, height and width, as [3, 32, 32]")),
    }
}

fn entries(nodes: &Value) -> Result<Vec<Entry>, Fault> {
    let list = nodes.list()?;
    if list.is_empty() {
        return Err(Fault::new(nodes.line, "there are no nodes in the list"));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(list.len());
    let mut lines = BTreeMap::new();
    for node in list {
        let entry = Entry::read(node)?;
        if let Some(before) = lines.insert(entry.name.clone(), entry.line) {
            let why = format!("the name stands in line {before} already; each node needs one of its own");
            return Err(Fault::of_node(entry.line, &entry.name, why));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    fn read(value: &Value) -> Result<Self, Fault> {
        let mut keys = value.table()?.clone();
        let name = keys.remove("name").ok_or_else(|| Fault::new(value.line, "a node without a name"))?;
        let text = name.text()?;
        if !is_name(text) {
            let why = format!(
                "{} is no name of a node; take up to {LONGEST_PATH} letters, digits, \"_\", \"-\", and \".\" between them, but not \
                 \"input\"",
                name.shown()
            );
            return Err(Fault::new(name.line, why));
        }
        Ok(Self { line: value.line, name: text.to_string(), keys })
    }
}

/// Whether this can be the name of a node, or the whole path of one: a part of the paths of parameters, of groups in HDF5 and of modules in
/// Python.
fn is_name(text: &str) -> bool {
    let plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let reserved = text.strip_prefix(INPUT).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
    text.len() <= LONGEST_PATH && text.split('.').all(plain) && !reserved
}

/// Refuses keys that are not among these.
pub(super) fn only(table: &Table, known: &[&str]) -> Result<(), Fault> {
    match table.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        Some((key, value)) => {
            let known = match did_you_mean(key, known) {
                near if near.is_empty() => format!("; there are {}", known.join(", ")),
                near => near,
            };
            Err(Fault::new(value.line, format!("unknown key {key}{known}")))
        }
        None => Ok(()),
    }
}

//! The parts of a file: the image shape and number of classes it was designed for, its nodes, and its blocks.

use std::collections::BTreeMap;

use base::text::did_you_mean;

use crate::op::toml_value::{Fault, Table, Value, parse};
use crate::{LONGEST_PATH, Shape};

/// A file with nodes that are not interpreted yet.
pub(super) struct File {
    /// Shape of the images that the network was designed for.
    pub input: Shape,
    /// Number of classes that it was designed for.
    pub classes: usize,
    /// Nodes and block entries in order.
    pub nodes: Vec<Entry>,
    pub blocks: BTreeMap<String, Block>,
}

/// A node, or an entry that stands for the nodes of a block.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub line: usize,
    /// Name within its block, without the block's path.
    pub name: String,
    pub keys: Table,
}

/// A named list of nodes with parameters.
pub(super) struct Block {
    /// Default values of parameters.
    pub defaults: Table,
    pub nodes: Vec<Entry>,
}

/// Maximum height, width and channels of an image.
const LARGEST: usize = 1 << 16;

const MOST_CLASSES: usize = 1 << 20;

/// The name that nodes use for the image or for their block's first input. Further inputs of a block are `input2` and
/// so on.
pub(super) const INPUT: &str = "input";

impl File {
    pub fn read(text: &str) -> Result<Self, Fault> {
        let table = parse(text)?;
        only(&table, &["input", "classes", "nodes", "blocks"])?;
        let missing = |key: &str, example: &str| Fault::new(1, format!("{key} is missing; write {example}"));
        let input =
            table.get("input").ok_or_else(|| missing("input", "input = [3, 32, 32] with the shape of the images"))?;
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
        _ => {
            let why = format!("expected channels, height and width, such as [3, 32, 32], got {}", value.shown());
            Err(Fault::new(value.line, why))
        }
    }
}

fn entries(nodes: &Value) -> Result<Vec<Entry>, Fault> {
    let list = nodes.list()?;
    if list.is_empty() {
        return Err(Fault::new(nodes.line, "the list of nodes is empty"));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(list.len());
    let mut lines = BTreeMap::new();
    for node in list {
        let entry = Entry::read(node)?;
        if let Some(before) = lines.insert(entry.name.clone(), entry.line) {
            let why = format!("the node in line {before} has the same name; rename one of them");
            return Err(Fault::of_node(entry.line, &entry.name, why));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    fn read(value: &Value) -> Result<Self, Fault> {
        let mut keys = value.table()?.clone();
        let name = keys.remove("name").ok_or_else(|| Fault::new(value.line, "the node has no name"))?;
        let text = name.text()?;
        if !is_name(text) {
            let why = format!(
                "{} is not a valid node name; use up to {LONGEST_PATH} letters, digits, \"_\", \"-\", and \".\" \
                 between them, but neither \"input\" nor \"input\" and a number, which name the image and inputs of blocks",
                name.shown()
            );
            return Err(Fault::new(name.line, why));
        }
        Ok(Self { line: value.line, name: text.to_string(), keys })
    }
}

/// Returns true if this is a valid node name or path. It becomes a part of parameter names, HDF5 groups and Python
/// modules.
fn is_name(text: &str) -> bool {
    let plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let reserved = text.strip_prefix(INPUT).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
    text.len() <= LONGEST_PATH && text.split('.').all(plain) && !reserved
}

/// Returns an error if the table has other keys than these.
pub(super) fn only(table: &Table, known: &[&str]) -> Result<(), Fault> {
    match table.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        Some((key, value)) => {
            let known = match did_you_mean(key, known) {
                near if near.is_empty() => format!("; the keys are {}", known.join(", ")),
                near => near,
            };
            Err(Fault::new(value.line, format!("unknown key {key}{known}")))
        }
        None => Ok(()),
    }
}

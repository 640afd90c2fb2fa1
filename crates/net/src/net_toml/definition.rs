//! A file that was read, and the network that it describes for images and classes. The layer that makes the scores changes with the number
//! of classes.

use std::collections::BTreeMap;

use loaders::text::did_you_mean;

use super::expand::{Flat, expand};
use super::keys::{Context, Keys, Reading, Word, is_attention, operation_elsewhere};
use super::ops::{self, Family};
use super::value::{Error, Fault, Table, Value, parse};
use crate::{Id, LONGEST_PATH, NetSpec, Op, Shape};

/// A network of a file, for images and classes of any number.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The file, for messages.
    file: String,
    /// The images that it is meant for.
    pub input: Shape,
    /// The number of classes that it is meant for.
    pub classes: usize,
    nodes: Vec<Flat>,
}

/// Keys that every node may have.
const COMMON: [&str; 2] = ["op", "head"];

impl Definition {
    /// Reads a text; `file` stands in messages.
    ///
    /// # Errors
    /// What is wrong with its first fault: line, node, and what to try.
    pub fn read(text: &str, file: &str) -> Result<Self, Error> {
        let read = || {
            let parts = File::read(text)?;
            let nodes = expand(&parts)?;
            read_by_somebody(&nodes)?;
            Ok(Self { file: file.into(), input: parts.input, classes: parts.classes, nodes })
        };
        read().map_err(|fault: Fault| fault.in_file(file))
    }

    /// The network for these images and classes.
    ///
    /// # Errors
    /// For a node whose numbers are wrong or do not fit its inputs, and for a network that does not end in a score for each class.
    pub fn build(&self, name: &str, input: Shape, classes: usize) -> Result<NetSpec, Error> {
        self.nodes(name, input, classes).map_err(|fault| fault.in_file(&self.file))
    }

    fn nodes(&self, name: &str, input: Shape, classes: usize) -> Result<NetSpec, Fault> {
        let mut net = NetSpec::new(name, input);
        let mut shapes = vec![input];
        for node in &self.nodes {
            let x = node.inputs.iter().map(|id| shapes[id.0]).collect();
            let context = Context { x, classes };
            let made = Layer::read(node, &context).map_err(|fault| fault.in_node(&node.name))?;
            let y = made.op.output_within_limits(&context.x).map_err(|why| self.unfit(node, &made, &context, &why))?;
            shapes.push(y);
            let id = net.join(&node.name, made.op, &node.inputs);
            if let Some(weight) = made.head {
                scores(node, y, classes)?;
                net.head(id, weight);
            }
        }
        if let (Some(last), Some(y)) = (self.nodes.last(), shapes.last()) {
            scores(last, *y, classes)?;
        }
        Ok(net)
    }

    /// A node that does not fit its inputs.
    fn unfit(&self, node: &Flat, layer: &Layer, context: &Context, why: &str) -> Fault {
        let source = |id: &Id| id.0.checked_sub(1).map_or("the image", |at| self.nodes[at].name.as_str());
        let each = node.inputs.iter().zip(&context.x).map(|(id, x)| format!("{} of {x}", source(id)));
        let (kind, reads) = (layer.op.kind(), each.collect::<Vec<_>>().join(" and "));
        Fault::of_node(node.line, &node.name, format!("{kind}: {why}; it reads {reads}; {}", layer.family.cure))
    }
}

/// A node that was read.
struct Layer {
    family: &'static Family,
    op: Op,
    /// The weight of its loss, where it makes the scores of an auxiliary classifier.
    head: Option<f32>,
}

impl Layer {
    fn read(node: &Flat, context: &Context) -> Result<Self, Fault> {
        let word = node.keys.get("op").ok_or_else(|| Fault::new(node.line, "neither op nor block"))?;
        let name = word.text()?;
        let family = ops::family(name).ok_or_else(|| {
            let words = ops::words();
            let hint = match operation_elsewhere(name, &words) {
                Some(ours) => format!("here it is {ours}"),
                None if is_attention(name) => "attention is not supported".into(),
                None => format!("there are {}{}", words.join(", "), did_you_mean(name, &words)),
            };
            Fault::new(word.line, format!("no operation \"{name}\"; {hint}"))
        })?;
        let mut op = (family.plain)(name);
        let keys: Table = node.keys.clone().into_iter().filter(|(key, _)| !COMMON.contains(&key.as_str())).collect();
        let mut keys = Keys::Read(Reading { keys, context, line: node.line, known: Vec::new(), fault: None });
        (family.keys)(&mut op, &mut keys);
        if let Keys::Read(reading) = keys {
            reading.finish(name)?;
        }
        let head = node.keys.get("head").map(|value| {
            let weight = f32::read(value, context).ok().filter(|weight| *weight > 0.0);
            weight.ok_or_else(|| Fault::new(value.line, "head: expected the weight of its loss, > 0, as 0.3"))
        });
        Ok(Self { family, op, head: head.transpose()? })
    }
}

/// Refuses a node whose output nobody reads.
fn read_by_somebody(nodes: &[Flat]) -> Result<(), Fault> {
    let mut read = vec![false; nodes.len() + 1];
    read[nodes.len()] = true;
    nodes.iter().flat_map(|node| &node.inputs).for_each(|id| read[id.0] = true);
    let alone = nodes.iter().enumerate().find(|(at, node)| !read[at + 1] && !node.keys.contains_key("head"));
    match alone {
        Some((_, node)) => {
            let why = "no other node reads it, and it is not the last; name it in the inputs of another, make it an auxiliary classifier \
                       with head = 0.3, or take it out";
            Err(Fault::of_node(node.line, &node.name, why))
        }
        None => Ok(()),
    }
}

/// Refuses an end that is not one score for each class.
fn scores(node: &Flat, y: Shape, classes: usize) -> Result<(), Fault> {
    if y == Shape::vector(classes) {
        return Ok(());
    }
    let why = format!(
        "it makes {y}, and the scores must be {classes}, one for each class; end with avgpool, flatten and linear with \
         features = \"classes\""
    );
    Err(Fault::of_node(node.line, &node.name, why))
}

/// The place of the last convolution or linear layer before a tensor of scores, behind which every layer keeps the channels.
pub fn scores_layer(net: &NetSpec, scores: usize) -> Option<usize> {
    let mut at = scores.checked_sub(1)?;
    loop {
        let node = &net.nodes[at];
        match &node.op {
            Op::Linear(_) | Op::Conv(_) => return Some(at),
            Op::Activation(_) | Op::Dropout(_) | Op::DropPath(_) | Op::Flatten(_) | Op::Pool(_) | Op::Norm(_) => {}
            _ => return None,
        }
        let [Id(before)] = node.inputs[..] else { return None };
        at = before.checked_sub(1)?;
    }
}

/// Has a network's scores, and those of auxiliary classifiers, be so many; gives the names of the layers that changed.
pub fn set_classes(net: &mut NetSpec, classes: usize) -> Vec<String> {
    let places: Vec<usize> = net.scores().collect();
    let places: Vec<usize> = places.into_iter().filter_map(|scores| scores_layer(net, scores)).collect();
    let mut changed = Vec::new();
    for at in places {
        let node = &mut net.nodes[at];
        let number = match &mut node.op {
            Op::Linear(linear) => &mut linear.out_features,
            Op::Conv(conv) => &mut conv.out_channels,
            _ => continue,
        };
        if *number != classes {
            *number = classes;
            changed.push(node.name.clone());
        }
    }
    changed
}

// The parts of a file: images and classes that the network is meant for, its nodes, and blocks of nodes.

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

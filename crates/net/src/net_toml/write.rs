//! Writes a network as a file with every node and every number that is not the operation's default.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::definition::{operation, operation_keys};
use super::file::INPUT;
use crate::op::toml_keys::{Keys, Must};
use crate::{Id, NetSpec, Node, Op, Shape};

/// How the number of classes is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classes {
    /// A number. The file then describes the network for this number of classes.
    Number,
    /// The word `"classes"` in the layers that compute the scores. The file then fits any data set.
    Word,
}

/// Returns a network's text for this number of classes.
pub fn write(net: &NetSpec, classes: usize, how: Classes) -> String {
    let makers: BTreeSet<usize> = match how {
        Classes::Number => BTreeSet::new(),
        Classes::Word => net.scores().filter_map(|scores| net.scores_layer(scores)).collect(),
    };
    let Shape { c, h, w } = net.input;
    let mut text = format!("input = [{c}, {h}, {w}]\nclasses = {classes}\nnodes = [\n");
    for (at, node) in net.nodes.iter().enumerate() {
        let _ = write!(text, "    {{ name = \"{}\", op = \"{}\"", node.name, node.op.kind());
        for (key, value) in keys(&node.op) {
            let number = ["channels", "features"].contains(&key) && value == classes.to_string();
            let value = if number && makers.contains(&at) { "\"classes\"".into() } else { value };
            let _ = write!(text, ", {key} = {value}");
        }
        text.push_str(&inputs(net, at, node));
        if let Some(head) = net.heads.iter().find(|head| head.output == Id(at + 1)) {
            let _ = write!(text, ", head = {:?}", head.weight);
        }
        text.push_str(" },\n");
    }
    text.push_str("]\n");
    text
}

/// Returns the `inputs` key of a node, or nothing if it reads the previous node.
fn inputs(net: &NetSpec, at: usize, node: &Node) -> String {
    if node.inputs == [Id(at)] {
        return String::new();
    }
    let name = |id: &Id| id.0.checked_sub(1).map_or(INPUT, |at| net.nodes[at].name.as_str());
    let names: Vec<String> = node.inputs.iter().map(|id| format!("\"{}\"", name(id))).collect();
    format!(", inputs = [{}]", names.join(", "))
}

/// Returns the keys of an operation that must be written.
fn keys(op: &Op) -> Vec<(&'static str, String)> {
    let Some(operation) = operation(op.kind()) else { return Vec::new() };
    let list = |mut op: Op| {
        let mut keys = Keys::Write(Vec::new());
        operation_keys(&mut op, &mut keys);
        if let Keys::Write(list) = keys { list } else { Vec::new() }
    };
    let plain = list((operation.plain)(op.kind()));
    let same = |key: &(&str, String, Must)| plain.iter().any(|other| other.0 == key.0 && other.1 == key.1);
    let wanted = list(op.clone()).into_iter().filter(|key| key.2 == Must::Have || !same(key));
    wanted.map(|(key, value, _)| (key, value)).collect()
}

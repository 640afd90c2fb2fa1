//! A network that was read from a file. It can be built for any image shape and number of classes. The layer that
//! computes the scores depends on the number of classes.

use base::text::did_you_mean;

use super::expand::{Flat, expand};
use super::file::File;
use crate::op::toml_keys::{Context, Keys, OpFormat, Reading, Word, is_attention, operation_elsewhere};
use crate::op::toml_value::{Error, Fault, Table};
use crate::{Id, NetSpec, Op, Shape, for_each_op};

/// A network from a file, for any image shape and number of classes.
#[derive(Clone, Debug)]
pub struct Definition {
    file: String,
    /// Shape of the images that it was designed for.
    pub input: Shape,
    /// Number of classes that it was designed for.
    pub classes: usize,
    nodes: Vec<Flat>,
}

/// Keys that every node may have.
const COMMON: [&str; 2] = ["op", "head"];

impl Definition {
    /// Parses a text. `file` is its name in messages.
    ///
    /// # Errors
    ///
    /// The error describes the first fault: line, node, and what to try.
    pub fn read(text: &str, file: &str) -> Result<Self, Error> {
        let read = || {
            let parts = File::read(text)?;
            let nodes = expand(&parts)?;
            read_by_somebody(&nodes)?;
            Ok(Self { file: file.into(), input: parts.input, classes: parts.classes, nodes })
        };
        read().map_err(|fault: Fault| fault.in_file(file))
    }

    /// Builds the network for these images and classes.
    ///
    /// # Errors
    ///
    /// Returns an error if the numbers of a node are wrong, too large, or do not fit its inputs, or if the network does
    /// not end in one score per class.
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

    /// Returns the error for a node that does not fit its inputs.
    fn unfit(&self, node: &Flat, layer: &Layer, context: &Context, why: &str) -> Fault {
        let source = |id: &Id| id.0.checked_sub(1).map_or("the image", |at| self.nodes[at].name.as_str());
        let each = node.inputs.iter().zip(&context.x).map(|(id, x)| format!("{} of {x}", source(id)));
        let (kind, reads) = (layer.op.kind(), each.collect::<Vec<_>>().join(" and "));
        let cure = match operation_cure(&layer.op, &context.x) {
            "" => String::new(),
            cure => format!("; {cure}"),
        };
        Fault::of_node(node.line, &node.name, format!("{kind}: {why}; it reads {reads}{cure}"))
    }
}

struct Layer {
    op: Op,
    /// The weight of the node's loss, if the node is the last one of an auxiliary classifier.
    head: Option<f32>,
}

impl Layer {
    fn read(node: &Flat, context: &Context) -> Result<Self, Fault> {
        let word = node.keys.get("op").ok_or_else(|| Fault::new(node.line, "the node has neither op nor block"))?;
        let name = word.text()?;
        let operation = operation(name).ok_or_else(|| {
            let words = words();
            let hint = match operation_elsewhere(name, &words) {
                Some(ours) => format!("trireme calls it {ours}"),
                None if is_attention(name) => {
                    "trireme calls it attention, and its projections are separate layers (conv with kernel = 1)".into()
                }
                None => format!("the operations are {}{}", words.join(", "), did_you_mean(name, &words)),
            };
            Fault::new(word.line, format!("unknown operation \"{name}\"; {hint}"))
        })?;
        let mut op = (operation.plain)(name);
        let keys: Table = node.keys.clone().into_iter().filter(|(key, _)| !COMMON.contains(&key.as_str())).collect();
        let mut keys = Keys::Read(Reading { keys, context, line: node.line, known: Vec::new(), fault: None });
        operation_keys(&mut op, &mut keys);
        if let Keys::Read(reading) = keys {
            reading.finish(name)?;
        }
        let head = node.keys.get("head").map(|value| {
            let weight = f32::read(value, context).ok().filter(|weight| *weight > 0.0);
            weight.ok_or_else(|| {
                let why = format!("head: expected the weight (> 0) of its loss, such as 0.3; got {}", value.shown());
                Fault::new(value.line, why)
            })
        });
        Ok(Self { op, head: head.transpose()? })
    }
}

/// Returns an error if a node's output is neither read by another node nor used as scores of the network or of an
/// auxiliary classifier.
fn read_by_somebody(nodes: &[Flat]) -> Result<(), Fault> {
    let mut read = vec![false; nodes.len() + 1];
    read[nodes.len()] = true;
    nodes.iter().flat_map(|node| &node.inputs).for_each(|id| read[id.0] = true);
    let alone = nodes.iter().enumerate().find(|(at, node)| !read[at + 1] && !node.keys.contains_key("head"));
    match alone {
        Some((_, node)) => {
            let why = "no other node reads it, and it is not the last node; add it to the inputs of another node, \
                       make it an auxiliary classifier with head = 0.3, or remove it";
            Err(Fault::of_node(node.line, &node.name, why))
        }
        None => Ok(()),
    }
}

/// Returns an error if `node`, the last node of the network or of an auxiliary classifier, does not compute one score
/// per class.
fn scores(node: &Flat, y: Shape, classes: usize) -> Result<(), Fault> {
    if y == Shape::vector(classes) {
        return Ok(());
    }
    let why = format!(
        "its output is {y}, but the network must end with {classes} scores, one for each class; end with avgpool, \
         flatten and linear with features = \"classes\""
    );
    Err(Fault::of_node(node.line, &node.name, why))
}

/// Changes the number of classes, also for auxiliary classifiers. Returns the names of the changed layers.
pub fn set_classes(net: &mut NetSpec, classes: usize) -> Vec<String> {
    let places: Vec<usize> = net.scores().collect();
    let places: Vec<usize> = places.into_iter().filter_map(|scores| net.scores_layer(scores)).collect();
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

/// The names of an operation in a file, and the function that creates it from such a name, see [`OpFormat`].
pub(super) struct Operation {
    pub words: &'static [&'static str],
    pub plain: fn(&str) -> Op,
}

macro_rules! operations {
    ($($file:ident $name:ident,)*) => {
        const OPERATIONS: &[Operation] = &[$(Operation {
            words: crate::$name::WORDS,
            plain: |word| crate::$name::plain(word).into(),
        },)*];

        /// Returns advice for a node that does not fit its inputs. May be empty.
        fn operation_cure(op: &Op, x: &[Shape]) -> &'static str {
            match op { $(Op::$name(op) => op.cure(x),)* }
        }

        /// Reads the operation's fields from the keys, or writes them to the keys.
        pub(super) fn operation_keys(op: &mut Op, keys: &mut Keys<'_>) {
            match op { $(Op::$name(op) => op.keys(keys),)* }
        }
    };
}
for_each_op!(operations);

pub(super) fn operation(word: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.words.contains(&word))
}

fn words() -> Vec<&'static str> {
    OPERATIONS.iter().flat_map(|operation| operation.words).copied().collect()
}

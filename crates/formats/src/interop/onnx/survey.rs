//! Converts a file node by node. The result is a network, or the list of nodes that are not supported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::text::{did_you_mean, printable, with_advice};
use loaders::regular;
use net::{NetSpec, Op, Shape};

use super::build::{Build, Layout, Value};
use super::fold::{fold, is_folded};
use super::fuse::{fuse, without_sigmoid};
use super::graph::{Dim, Graph, Input, Node};
use super::operators;
use super::tensor::type_name;
use crate::checkpoint::Tensor;
use crate::interop::ExportedModel;
use crate::interop::export::onnx::STORED_INPUT;

#[derive(Clone, Debug)]
pub struct Survey {
    pub path: PathBuf,
    pub nodes: usize,
    /// Each unsupported node as `node NAME (OP): why`. If all nodes are supported, but not the output of the graph, only a message about
    /// the output.
    pub unsupported: Vec<String>,
    /// Number of nodes that were not checked, because they depend on an unsupported node.
    pub behind: usize,
    /// The network, if all nodes are supported.
    network: Option<Network>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub net: NetSpec,
    pub classes: usize,
    /// Names as in PyTorch, shapes and values of weights and running statistics.
    pub tensors: Vec<Tensor>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
    /// The model that trireme exported to this file, if it did.
    pub exported: Option<ExportedModel>,
}

const FLOAT: i64 = 1;
const FLOAT16: i64 = 10;
const FLOAT64: i64 = 11;
const BFLOAT16: i64 = 16;

/// Largest supported height, width and number of channels.
const LARGEST: i64 = 1 << 16;

/// Largest file in bytes, which is protobuf's limit.
const MOST: u64 = i32::MAX as u64;

/// Reads and converts a file.
///
/// # Errors
/// Fails if the file is too large or not an ONNX model, has an unknown opset, has nodes in the wrong order or in a cycle, or does not have
/// exactly one input, an image of fixed size. Unsupported nodes are not an error here. [`Survey::network`] returns the error for them.
pub fn read(path: &Path) -> Result<Survey, Error> {
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    let bytes = regular::open(path).and_then(|file| file.metadata()).map_err(io)?.len();
    if bytes > MOST {
        let why = format!("the file has {bytes} bytes, but ONNX files can have at most {MOST}");
        return Err(Error::File { path: path.to_path_buf(), why });
    }
    of_bytes(&regular::read(path).map_err(io)?, path)
}

/// Converts the bytes of a file. `path` is used in messages and for the network's name.
///
/// # Errors
/// Fails in the same cases as [`read`].
pub fn of_bytes(bytes: &[u8], path: &Path) -> Result<Survey, Error> {
    // any message may contain names from the file
    let survey =
        survey(bytes, path).map_err(|why| Error::File { path: path.to_path_buf(), why: printable(&why).into() })?;
    Ok(Survey { unsupported: survey.unsupported.iter().map(|text| printable(text).into()).collect(), ..survey })
}

impl Survey {
    /// Returns the network.
    ///
    /// # Errors
    /// Returns [`Error::Nodes`] if [`Survey::unsupported`] is not empty.
    pub fn network(self) -> Result<Network, Error> {
        self.network.ok_or(Error::Nodes { path: self.path, nodes: self.unsupported })
    }
}

fn survey(bytes: &[u8], path: &Path) -> Result<Survey, String> {
    let graph = Graph::read(bytes)?;
    check(&graph)?;
    let image = image(&graph)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut build = Build::new(&graph, &name, image, bytes.len(), crate::interop::ops::is_non_negative);
    let (mut unsupported, mut behind) = (Vec::new(), 0);
    for node in &graph.nodes {
        let made = step(&mut build, node);
        let made = match made {
            Ok(value) => value,
            Err(Stop::Behind) => {
                behind += 1;
                Value::Missing
            }
            Err(Stop::Unsupported(why)) => {
                unsupported.push(format!("node {} ({}): {why}", node.label(), node.op));
                Value::Missing
            }
        };
        let rest = node.outputs.iter().skip(1).filter(|output| !build.is_set(output));
        let rest: Vec<(&str, Value)> = rest.map(|output| (*output, Value::Missing)).collect();
        let all = node.outputs.first().map(|output| (*output, made)).into_iter().chain(rest);
        all.filter(|(output, _)| !output.is_empty()).for_each(|(output, value)| build.set(node, output, value));
    }
    let network = if unsupported.is_empty() { finish(build).map_err(|why| unsupported.push(why)).ok() } else { None };
    Ok(Survey { path: path.to_path_buf(), nodes: graph.nodes.len(), unsupported, behind, network })
}

/// The reason why a node has no result.
enum Stop {
    /// The node is not supported.
    Unsupported(String),
    /// It depends on a node that is not supported.
    Behind,
}

fn step<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, Stop> {
    if !node.is_own() {
        return Err(Stop::Unsupported(format!(
            "it is of the domain \"{}\", but only ONNX's own operators are supported. Use the graph from before a runtime optimised it, \
             or export without custom operators",
            node.domain
        )));
    }
    let handler = operators::handler(node.op);
    let unknown = || {
        let near = did_you_mean(node.op, &operators::names());
        Stop::Unsupported(format!("the operator is not supported{near}"))
    };
    if handler.is_none() && !is_folded(node.op) {
        return Err(unknown());
    }
    if node.inputs.iter().any(|name| build.is_missing(name)) {
        return Err(Stop::Behind);
    }
    if let Some(value) = fold(build, node).map_err(Stop::Unsupported)? {
        return Ok(value);
    }
    let handler = handler.ok_or_else(unknown)?;
    operators::check_inputs(node).map_err(Stop::Unsupported)?;
    handler(build, node).map_err(Stop::Unsupported)
}

/// Number of inputs that a message lists.
const MOST_NAMED: usize = 5;

/// What to do about a graph that normalises its images.
const WITHOUT_PREPROCESS: &str = "The network must read normalised images: export without --preprocess";

/// Returns the name, the shape and the layout of the input image.
fn image<'a>(graph: &Graph<'a>) -> Result<(&'a str, Shape, Layout), String> {
    let [Input { name, kind, dims }] = &graph.inputs[..] else {
        let names: Vec<&str> = graph.inputs.iter().map(|input| input.name).collect();
        if names.is_empty() {
            return Err("no node reads an input of the graph, expected one, the images".into());
        }
        let first = names[..names.len().min(MOST_NAMED)].join(", ");
        let more = if names.len() > MOST_NAMED { ", ..." } else { "" };
        return Err(format!(
            "the nodes read {} inputs ({first}{more}), expected one, the images. Store the values of the others in the file, as \
             tf2onnx.convert.from_keras does",
            names.len()
        ));
    };
    // An export with --preprocess of a model for float32 images. Its graph repeats the `normalize` that its metadata list.
    if *kind == FLOAT && *name == STORED_INPUT && !graph.about.is_empty() {
        return Err(format!("its input {name} has stored pixel values. {WITHOUT_PREPROCESS}"));
    }
    if *kind != FLOAT {
        let cure = match *kind {
            FLOAT16 | FLOAT64 | BFLOAT16 => "Export model.float()",
            _ => WITHOUT_PREPROCESS,
        };
        return Err(format!("its input {name} is of {}, expected float32. {cure}", type_name(*kind)));
    }
    let &[_, second, third, fourth] = dims.as_slice() else {
        return Err(format!("its input {name} has {} dimensions; images have 4: (N, C, H, W)", dims.len()));
    };
    // graphs from TensorFlow have (N, H, W, C) inputs, followed by a Transpose
    let few = |dim: Dim<'_>| matches!(dim, Dim::Known(1..=4));
    let layout = if few(fourth) && !few(second) { Layout::Last } else { Layout::Image };
    let (c, h, w) = if layout == Layout::Last { (fourth, second, third) } else { (second, third, fourth) };
    let size = |at: usize, dim: Dim<'_>| match dim {
        Dim::Known(n) if (1..=LARGEST).contains(&n) => Ok(n as usize),
        Dim::Known(n) => Err(format!("dimension {at} of its input {name} is {n}, expected 1 to {LARGEST}")),
        Dim::Named(dim) => Err(format!(
            "a dynamic shape: dimension {at} of its input {name} is \"{dim}\", but only the number of images may vary. Export with a \
             fixed size, for example torch.onnx.export(model, torch.randn(1, 3, 224, 224), ...)"
        )),
    };
    let at = if layout == Layout::Last { [3, 1, 2] } else { [1, 2, 3] };
    Ok((name, Shape::image(size(at[0], c)?, size(at[1], h)?, size(at[2], w)?), layout))
}

/// Returns the network up to the graph's first output.
fn finish(mut build: Build<'_>) -> Result<Network, String> {
    let Some(output) = build.graph.outputs.first().copied() else { return Err("the graph has no output".into()) };
    let view = build.output(output)?;
    let classes = build.shapes[view.id.0];
    if classes.plane() != 1 || view.id.0 == 0 {
        return Err(format!("its output {output} is {classes}, expected one score for each class"));
    }
    if view.layout.is_reordered() {
        return Err(format!("its output {output} is flattened from images with the channels last; add a linear layer"));
    }
    if build.graph.outputs.len() > 1 {
        build.notes.push(format!("all outputs except {output} are ignored"));
    }
    let mut net = build.net;
    net.nodes.truncate(view.id.0);
    let (net, sigmoid) = without_sigmoid(fuse(net));
    if let Some(name) = sigmoid {
        build.notes.push(format!(
            "{name} (Sigmoid) at the end is left out. The network computes scores, which the loss and `predict` turn into probabilities: \
             with a softmax, or with a sigmoid if images can have more than one label"
        ));
    }
    let Some(_) = net.nodes.last() else { return Err("the graph has no nodes".into()) };
    if !net.nodes.iter().any(|node| matches!(node.op, Op::Norm(_)))
        && build.graph.nodes.iter().filter(|node| node.op == "Conv").count() > 1
    {
        build.notes.push(
            "the graph has no batch normalisation. If the exporter merged it into the convolutions, the network trains without it. PyTorch \
             keeps it with torch.onnx.export(model.eval(), ..., training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)"
                .into(),
        );
    }
    let mut tensors = Vec::new();
    for node in &net.nodes {
        let own = build.weights.remove(&node.name).into_iter().flatten();
        tensors.extend(own.map(|(field, shape, values)| (format!("{}.{field}", node.name), shape, values)));
    }
    let exported = ExportedModel::from_metadata(|name| build.graph.about.get(name).copied());
    Ok(Network { net, classes: classes.elems(), tensors, notes: build.notes, exported })
}

/// Fails if two nodes compute the same value, or if a node reads a value that it or a later node computes.
pub(super) fn check(graph: &Graph<'_>) -> Result<(), String> {
    let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if let Some(other) = makers.insert(output, at) {
                return Err(format!("nodes {} and {} both compute {output}", graph.nodes[other].label(), node.label()));
            }
        }
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        for input in &node.inputs {
            if let Some(maker) = makers.get(input).filter(|maker| **maker >= at) {
                return Err(why(graph, &makers, at, *maker));
            }
        }
    }
    Ok(())
}

/// Maximum number of nodes of a cycle that a message lists.
const MOST_IN_CYCLE: usize = 8;

/// Describes a cycle from `from` through `to` back to `from`, if there is one. Otherwise says that the nodes are in the wrong order.
fn why(graph: &Graph<'_>, makers: &BTreeMap<&str, usize>, from: usize, to: usize) -> String {
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut open = vec![to];
    while let Some(at) = open.pop() {
        if at == from {
            let mut way = vec![from];
            let mut step = from;
            while step != to {
                step = before[&step];
                way.push(step);
            }
            way.reverse();
            // the cycle begins and ends with `from`, but the nodes that do not fit into the message are only counted
            let names: Vec<&str> = [from].iter().chain(&way).map(|at| graph.nodes[*at].label()).collect();
            let named = names[..names.len().min(MOST_IN_CYCLE)].join(" -> ");
            let more = match names.len().saturating_sub(MOST_IN_CYCLE) {
                0 => String::new(),
                _ => format!(" -> ... ({} nodes in the cycle)", way.len()),
            };
            return format!("the nodes form a cycle, where each reads the output of the next: {named}{more}");
        }
        for next in graph.nodes[at].inputs.iter().filter_map(|input| makers.get(input)) {
            if *next != to && !before.contains_key(next) {
                before.insert(*next, at);
                open.push(*next);
            }
        }
    }
    let (own, other) = (graph.nodes[from].label(), graph.nodes[to].label());
    format!("node {own} reads the output of node {other}, which comes later. Sort the nodes as onnx.checker requires")
}

/// An error of an ONNX file. Each message names the node or the tensor and says what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {}", .path.display(), loaders::why(.path, .source))]
    Io { path: PathBuf, source: std::io::Error },
    /// The file is not an ONNX model, or its kind is not supported.
    #[error("{}: {why}", .path.display())]
    File { path: PathBuf, why: String },
    #[error("{}: {}", .path.display(), first_of(.nodes))]
    Nodes {
        path: PathBuf,
        /// The messages in [`Survey::unsupported`]. There is at least one.
        nodes: Vec<String>,
    },
}

fn first_of(nodes: &[String]) -> String {
    let first = nodes.first().map_or("", String::as_str);
    match nodes.len() {
        0 | 1 => first.to_string(),
        2 => with_advice(first, "1 more node is not supported: `trireme models FILE` lists both"),
        n => with_advice(first, &format!("{} more nodes are not supported: `trireme models FILE` lists all", n - 1)),
    }
}

//! Writes an ONNX model: opset 17, any number of images, float32 inputs and outputs.
//!
//! - `graph`: nodes and weights
//! - `layer`: the nodes of one layer
//! - `preprocess`: transforms of images as nodes

pub(crate) mod graph;
pub(crate) mod layer;
mod preprocess;

use std::io::Write;
use std::path::Path;

use graph::Attribute;
use graph::Graph;
use layer::LayerWriter;
use loaders::protobuf::Message;
use loaders::safe_create::NewFile;

use super::format::{Error, Settings};
use super::network::Layer;
use super::trained::Trained;
use crate::interop::ops::mapping;

/// The version of the file format that belongs to opset 17.
const IR_VERSION: i64 = 8;

const OPSET: i64 = 17;

/// Maximum size of a protobuf message in bytes.
const MOST: u64 = i32::MAX as u64;

const INPUT: &str = "input";

/// Name of the input if the graph reads stored pixel values.
pub(crate) const STORED_INPUT: &str = "image";

/// Name of the output: class scores before softmax.
const OUTPUT: &str = "logits";

/// Writes a network to `path`. Returns a note for the user, if there is one.
pub(super) fn write(trained: &Trained, path: &Path, settings: &Settings) -> Result<Option<String>, Error> {
    let mut graph = Graph::new(settings.number());
    let outs = outputs(&mut graph, trained, if settings.preprocess { STORED_INPUT } else { INPUT });
    let mut notes = None;
    let image = match settings.preprocess {
        true => {
            let before = preprocess::add_before(&mut graph, trained)?;
            notes = Some(before.note);
            before.output
        }
        false => graph.images(INPUT, trained.network.net.input),
    };
    let mut tensors = vec![image];
    for layer in trained.network.layers() {
        let node = layer.node;
        if !layer.serving {
            tensors.push(String::new());
            continue;
        }
        let inputs = node.inputs.iter().zip(&layer.turns);
        let inputs = inputs.map(|(id, turn)| layer::turned(&mut graph, &layer, *turn, &tensors[id.0]));
        let inputs: Vec<String> = inputs.collect();
        let mut writer = LayerWriter { graph: &mut graph, trained, layer: &layer, out: &outs[layer.index] };
        let made = mapping(&node.op).to_onnx(&mut writer, &inputs);
        let refuse = |why| Error::Op { layer: node.name.clone(), kind: node.op.kind(), format: "ONNX", why };
        tensors.push(made.map_err(refuse)?);
    }
    if !trained.network.ends_flat() {
        let last = tensors.pop().unwrap_or_default();
        graph.named("Flatten", &[&last], OUTPUT, &[("axis", Attribute::Int(1))]);
    }
    graph.output(OUTPUT, trained.network.output().elems());
    store(path, &model(trained), graph.finish(&trained.model.network))?;
    Ok(notes)
}

/// Returns a name for the output of each layer: the layer's name, with a number if the graph's input, its output or a
/// weight has the same name. The graph's input, output and weights keep their names, because other programs look them
/// up.
fn outputs(graph: &mut Graph, trained: &Trained, input: &str) -> Vec<String> {
    let network = &trained.network;
    [input, OUTPUT].into_iter().for_each(|name| graph.keep(name));
    for layer in network.layers().filter(|layer| layer.serving) {
        let tensors = trained.tensors(layer.node);
        tensors.for_each(|tensor| graph.keep(&format!("{}.{}", layer.node.name, tensor.field)));
    }
    let name = |layer: Layer<'_>| match network.is_last(&layer) && network.ends_flat() {
        true => OUTPUT.to_string(),
        false => graph.free(&layer.node.name),
    };
    network.layers().map(name).collect()
}

/// Returns the model message (`ModelProto`) without its graph.
fn model(trained: &Trained) -> Message {
    let opset = Message::default().text(1, "").int(2, OPSET);
    let model =
        Message::default().int(1, IR_VERSION).text(2, "trireme").text(3, env!("CARGO_PKG_VERSION")).message(8, &opset);
    let pair = |(name, text): (String, String)| Message::default().text(1, &name).text(2, &text);
    trained.model.metadata().into_iter().map(pair).fold(model, |model, pair| model.message(14, &pair))
}

/// Writes the file: the fields of the model, then the graph as its last field. This needs no copy of the graph in
/// memory.
fn store(path: &Path, model: &Message, graph: Message) -> Result<(), Error> {
    let header = Message::default().header(7, graph.bytes().len());
    let bytes = [model, &header, &graph].map(|part| part.bytes().len() as u64).iter().sum();
    if bytes > MOST {
        return Err(Error::TooLarge { path: path.to_path_buf(), bytes, most: MOST });
    }
    let write = || {
        let mut new = NewFile::beside(path)?;
        [model, &header, &graph].into_iter().try_for_each(|part| new.file()?.write_all(part.bytes()))?;
        new.publish().map(drop)
    };
    write().map_err(|source| Error::Io { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::ModelFile;
    use crate::interop::export::Format;
    use crate::temporary::Temporary;
    use net::{Add, Conv, Linear, NetSpec, Pool, Shape};

    /// A convolution gets a vector as an image of one pixel. Where an image of one pixel is added to a vector, or is
    /// the output, it becomes a vector.
    #[test]
    fn inputs_are_reshaped_to_the_rank_that_nodes_expect() {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let mean = net.add("mean", Pool::global(), net.image());
        let fc = net.add("fc", Linear::new(3), mean);
        let sum = net.join("sum", Add, &[mean, fc]);
        net.add("head", Conv::new(2, 1), sum);
        let trained = Trained::new(net, ModelFile::sample()).unwrap();
        let Temporary(path) = &Temporary::new("vectors.onnx");
        let settings = Settings { format: Format::Onnx, half: false, fold: false, preprocess: false, force: false };
        write(&trained, path, &settings).unwrap();
        let bytes = std::fs::read(path).unwrap();
        // the file has the nodes in order, each with its inputs, its output (twice) and its operator
        let mut rest = &bytes[..];
        for text in ["fc.flat", "sum.flat", "Flatten", "head.image", "Unsqueeze", "Conv", "head", "logits", "Flatten"] {
            let at = rest.windows(text.len()).position(|window| window == text.as_bytes());
            rest = &rest[at.unwrap_or_else(|| panic!("no {text} where it should be")) + text.len()..];
        }
    }
}

//! A graph's parameters as the layers of a model file, and back.

use std::collections::BTreeMap;

use super::Error;
use crate::backend::Backend;
use crate::backend::op::{Op, Shape};
use crate::checkpoint::{LayerKind, LayerWeights, ModelFile};
use crate::nn::Graph;

/// Plain copies of all layers with weights, in the order of the network. Fails if any value is not finite: such a model would
/// only replace a good one.
pub fn layers<B: Backend>(graph: &Graph<B>) -> Result<Vec<LayerWeights>, Error> {
    let mut layers: Vec<LayerWeights> = Vec::new();
    for (node, spec) in graph.net().nodes.iter().enumerate() {
        let mut tensors = Vec::new();
        for (i, p) in graph.params().iter().enumerate().filter(|(_, p)| p.node == node) {
            tensors.push((p.spec.field.to_string(), p.spec.shape.clone(), graph.param(i)?));
        }
        if let Some(place) = graph.norms().iter().find(|n| n.node == node) {
            let running = &graph.running()[place.offset..][..2 * place.channels];
            let (mean, var) = running.split_at(place.channels);
            tensors.push(("running_mean".into(), vec![place.channels], mean.to_vec()));
            tensors.push(("running_var".into(), vec![place.channels], var.to_vec()));
        }
        if let Some((field, ..)) = tensors.iter().find(|t| t.2.iter().any(|v| !v.is_finite())) {
            let name = format!("{}.{field}", spec.name);
            return Err(Error::Failed(format!(
                "parameter {name} holds NaN or infinity, no model is written; the last good one stands. Try a smaller \
                 schedule.base_lr or a longer warm-up"
            )));
        }
        if !tensors.is_empty() {
            layers.push(LayerWeights { name: spec.name.clone(), kind: kind(graph, node), tensors });
        }
    }
    Ok(layers)
}

fn kind<B: Backend>(graph: &Graph<B>, node: usize) -> LayerKind {
    match &graph.net().nodes[node].op {
        Op::Conv(_) => LayerKind::Conv,
        Op::Norm(_) => LayerKind::Norm,
        _ => LayerKind::Linear { flatten: flattened(graph, node) },
    }
}

/// Shape of the image that a linear layer's input was, looking through layers that keep the order of its elements.
fn flattened<B: Backend>(graph: &Graph<B>, node: usize) -> Option<[usize; 3]> {
    let nodes = &graph.net().nodes;
    let mut tensor = nodes[node].inputs[0].0;
    while tensor > 0 {
        let Shape { c, h, w } = graph.shapes()[tensor];
        if h * w > 1 {
            return Some([c, h, w]);
        }
        match nodes[tensor - 1].op {
            Op::Flatten | Op::Relu | Op::Tanh | Op::Dropout(_) => tensor = nodes[tensor - 1].inputs[0].0,
            _ => return None,
        }
    }
    let Shape { c, h, w } = graph.shapes()[0];
    (h * w > 1).then_some([c, h, w])
}

/// Fills a graph from a model file; every parameter must be there with its shape.
pub fn restore<B: Backend>(graph: &mut Graph<B>, file: &ModelFile) -> Result<(), Error> {
    let tensors: BTreeMap<String, (&[usize], &[f32])> = file
        .layers
        .iter()
        .flat_map(|l| l.tensors.iter().map(move |(f, s, v)| (format!("{}.{f}", l.name), (s.as_slice(), v.as_slice()))))
        .collect();
    let find = |name: &str, shape: &[usize]| match tensors.get(name) {
        Some((s, values)) if *s == shape => Ok(*values),
        Some((s, _)) => Err(mismatch(file, name, &format!("shape {shape:?}"), &format!("{s:?}"))),
        None => Err(mismatch(file, name, &format!("shape {shape:?}"), "nothing of that name")),
    };
    for i in 0..graph.params().len() {
        let p = &graph.params()[i];
        let values = find(&p.name.clone(), &p.spec.shape.clone())?;
        graph.set_param(i, values)?;
    }
    for place in graph.norms().to_vec() {
        let name = graph.net().nodes[place.node].name.clone();
        let mean = find(&format!("{name}.running_mean"), &[place.channels])?;
        let var = find(&format!("{name}.running_var"), &[place.channels])?;
        let running = &mut graph.running_mut()[place.offset..][..2 * place.channels];
        running[..place.channels].copy_from_slice(mean);
        running[place.channels..].copy_from_slice(var);
    }
    let running = 2 * graph.norms().len();
    if tensors.len() != graph.params().len() + running {
        let expected = format!("{} tensors", graph.params().len() + running);
        return Err(mismatch(file, "the whole model", &expected, &tensors.len().to_string()));
    }
    Ok(())
}

fn mismatch(file: &ModelFile, name: &str, expected: &str, got: &str) -> Error {
    Error::Failed(format!(
        "model file of network {}: {name}: expected {expected}, got {got}; the file is of another version of this network",
        file.network
    ))
}

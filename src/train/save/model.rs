//! A graph's parameters as the layers of a model file, and back.

use std::collections::BTreeMap;

use crate::backend::Backend;
use crate::checkpoint::{LayerWeights, ModelFile};
use crate::error::Error;
use crate::nn::Graph;
use crate::train::save::export::Exporter;

/// Plain copies of all layers with weights, in the order of the network. Fails if any value is not finite.
pub fn layers<B: Backend>(graph: &Graph<B>) -> Result<Vec<LayerWeights>, Error> {
    Exporter::of(graph).layers(graph.weights(), graph.running())
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
    Error::Mismatch {
        what: format!("model file of network {}: {name}", file.network),
        expected: expected.into(),
        got: got.into(),
        cure: "the file is of another version of this network".into(),
    }
}

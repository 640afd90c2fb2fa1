//! A graph's parameters as the layers of a model file, and back.

use std::collections::BTreeMap;

use backend::Backend;
use engine::Graph;
use engine::graph::BuildError;
use formats::checkpoint::{LayerWeights, ModelFile, Tensor};
use net::NetSpec;
use net::Tensors;

use crate::error::Error;
use crate::train::save::export::Exporter;

/// Plain copies of all layers with weights, in the order of the network. Fails if any value is not finite.
pub fn layers<B: Backend>(graph: &Graph<B>) -> Result<Vec<LayerWeights>, Error> {
    Exporter::of(graph).layers(graph.weights(), graph.running())
}

/// Refuses weights that are not those of `net`, before any memory is taken for it.
pub fn check(file: &ModelFile, layers: &[LayerWeights], net: &NetSpec) -> Result<(), Error> {
    let have: BTreeMap<String, &[usize]> =
        layers.iter().flat_map(of_layer).map(|(name, (shape, _))| (name, shape)).collect();
    let Tensors { parameters, running } = net.tensors().map_err(BuildError::from)?;
    for (name, shape) in parameters.iter().chain(&running) {
        match have.get(name) {
            Some(found) if *found == shape.as_slice() => {}
            Some(found) => return Err(mismatch(file, name, &format!("shape {shape:?}"), &format!("{found:?}"))),
            None => return Err(mismatch(file, name, &format!("shape {shape:?}"), "nothing of that name")),
        }
    }
    let tensors = layers.iter().map(|layer| layer.tensors.len()).sum::<usize>();
    if tensors != parameters.len() + running.len() {
        let expected = format!("{} tensors", parameters.len() + running.len());
        return Err(mismatch(file, "the whole model", &expected, &tensors.to_string()));
    }
    Ok(())
}

/// A tensor's shape and values.
type Plain<'a> = (&'a [usize], &'a [f32]);

/// The tensors of a layer by their names in the network.
fn of_layer(layer: &LayerWeights) -> impl Iterator<Item = (String, Plain<'_>)> {
    let named = |tensor: &Tensor| format!("{}.{}", layer.name, tensor.0);
    layer.tensors.iter().map(move |tensor| (named(tensor), (tensor.1.as_slice(), tensor.2.as_slice())))
}

/// Fills a graph from a model file; every parameter must be there with its shape, and nothing else.
pub fn restore<B: Backend>(graph: &mut Graph<B>, file: &ModelFile) -> Result<(), Error> {
    check(file, &file.layers, graph.net())?;
    let tensors: BTreeMap<String, Plain<'_>> = file.layers.iter().flat_map(of_layer).collect();
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

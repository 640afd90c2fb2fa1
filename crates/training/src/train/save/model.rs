//! Converts a graph's parameters to the layers of a model file and back. Files have plain tensors, without a device's padding and
//! reordering. [`Exporter`] converts copies of the parameters, so that another thread can write a file while training continues.

use std::collections::BTreeMap;

use backend::{Arena, Backend, ParamFormat};
use engine::graph::BuildError;
use engine::{Graph, NormPlace, Param};
use formats::checkpoint::{LayerKind, LayerWeights, ModelFile, Tensor};
use net::{FeatureOrder, NetSpec, Node, Shape, Tensors};

use crate::error::Error;

/// Returns copies of all layers with weights in plain layout, in network order. Returns an error if a value is not finite.
pub fn layers<B: Backend>(graph: &Graph<B>) -> Result<Vec<LayerWeights>, Error> {
    Exporter::new(graph).layers(graph.weights(), graph.running())
}

/// Returns an error if the tensors in `layers` do not fit `net`. Called before the graph is built, so that a wrong file costs no memory.
pub fn check(file: &ModelFile, layers: &[LayerWeights], net: &NetSpec) -> Result<(), Error> {
    let have: BTreeMap<String, &[usize]> =
        layers.iter().flat_map(of_layer).map(|(name, (shape, _))| (name, shape)).collect();
    let Tensors { parameters, running } = net.tensors().map_err(BuildError::from)?;
    for (name, shape) in parameters.iter().chain(&running) {
        match have.get(name) {
            Some(found) if *found == shape.as_slice() => {}
            Some(found) => return Err(mismatch(file, name, &format!("shape {shape:?}"), &format!("{found:?}"))),
            None => return Err(mismatch(file, name, &format!("shape {shape:?}"), "no tensor of that name")),
        }
    }
    let tensors = layers.iter().map(|layer| layer.tensors.len()).sum::<usize>();
    if tensors != parameters.len() + running.len() {
        let expected = format!("{} tensors", parameters.len() + running.len());
        return Err(mismatch(file, "number of tensors", &expected, &tensors.to_string()));
    }
    Ok(())
}

/// Shape and values of a tensor.
type Plain<'a> = (&'a [usize], &'a [f32]);

/// Returns the tensors of a layer with their names in the network.
fn of_layer(layer: &LayerWeights) -> impl Iterator<Item = (String, Plain<'_>)> {
    let named = |tensor: &Tensor| format!("{}.{}", layer.name, tensor.0);
    layer.tensors.iter().map(move |tensor| (named(tensor), (tensor.1.as_slice(), tensor.2.as_slice())))
}

/// Sets the parameters and running statistics of a graph from a model file. The file must have exactly the graph's tensors, with the same
/// shapes.
pub fn restore<B: Backend>(graph: &mut Graph<B>, file: &ModelFile) -> Result<(), Error> {
    check(file, &file.layers, graph.net())?;
    let tensors: BTreeMap<String, Plain<'_>> = file.layers.iter().flat_map(of_layer).collect();
    set_some(graph, &tensors.iter().map(|(name, (_, values))| (name.as_str(), *values)).collect())
}

/// Sets the parameters and running statistics whose names are in `values`. All others stay unchanged.
pub fn set_some<B: Backend>(graph: &mut Graph<B>, values: &BTreeMap<&str, &[f32]>) -> Result<(), Error> {
    for i in 0..graph.params().len() {
        if let Some(values) = values.get(graph.params()[i].name.as_str()) {
            graph.set_param(i, values)?;
        }
    }
    for place in graph.norms().to_vec() {
        let name = graph.net().nodes[place.node].name.clone();
        for (half, field) in ["running_mean", "running_var"].into_iter().enumerate() {
            if let Some(values) = values.get(format!("{name}.{field}").as_str()) {
                let at = place.offset + half * place.channels;
                graph.running_mut()[at..at + place.channels].copy_from_slice(values);
            }
        }
    }
    Ok(())
}

fn mismatch(file: &ModelFile, name: &str, expected: &str, got: &str) -> Error {
    Error::Mismatch {
        what: format!("model file of network {}: {name}", file.network),
        expected: expected.into(),
        got: got.into(),
        cure: "the file was changed, or is from another version of this network; use another file".into(),
    }
}

/// Returns, for each node, how files store the tensors of its layer. `None` if it has no tensors. `shapes` has the shapes of all tensors of
/// the network.
pub fn layer_kinds(net: &NetSpec, shapes: &[Shape]) -> Vec<Option<LayerKind>> {
    let orders = net.feature_orders(shapes);
    let kind = |node: &Node| {
        let mut kind = LayerKind::new(node.op.stored()?);
        if kind.stored.depends_on_flatten() {
            let input = node.inputs[0].0;
            kind.flatten = match orders[input].flattened(shapes[input]) {
                FeatureOrder::Flattened(Shape { c, h, w }) => Some([c, h, w]),
                FeatureOrder::Same | FeatureOrder::Mixed => None,
            };
        }
        Some(kind)
    };
    net.nodes.iter().map(kind).collect()
}

// Converts copies of a graph's memory to plain tensors with names and shapes. The conversion does not need the graph, so another thread can
// do it while training continues.

/// A layer with weights, and the places of its values in memory.
struct Layer<B: Backend> {
    name: String,
    kind: LayerKind,
    params: Vec<Param<B>>,
    norm: Option<NormPlace>,
}

/// Converts copies of a graph's memory. It has the layers with weights, in network order.
pub struct Exporter<B: Backend> {
    layers: Vec<Layer<B>>,
}

impl<B: Backend> Exporter<B> {
    /// Collects the layers of `graph`.
    pub fn new(graph: &Graph<B>) -> Self {
        let kinds = layer_kinds(graph.net(), graph.shapes());
        let layer = |(node, spec): (usize, &net::Node)| {
            let params: Vec<_> = graph.params().iter().filter(|p| p.node == node).map(copy).collect();
            let norm = graph.norms().iter().find(|n| n.node == node).copied();
            Some(Layer { name: spec.name.clone(), kind: kinds[node]?, params, norm })
        };
        Self { layers: graph.net().nodes.iter().enumerate().filter_map(layer).collect() }
    }

    /// Returns all layers as plain tensors. `weights` has the layout of the graph's parameters, and `running` that of its running
    /// statistics. Returns an error if a value is not finite, because such a file would replace a good one.
    pub fn layers(&self, weights: &Arena<B>, running: &[f32]) -> Result<Vec<LayerWeights>, Error> {
        let mut layers: Vec<LayerWeights> = Vec::new();
        for layer in &self.layers {
            let mut tensors = Vec::new();
            for p in &layer.params {
                tensors.push((p.spec.field.to_string(), p.spec.shape.clone(), unpack(p, weights)?));
            }
            if let Some(place) = layer.norm {
                let (mean, var) = running[place.offset..][..2 * place.channels].split_at(place.channels);
                tensors.push(("running_mean".into(), vec![place.channels], mean.to_vec()));
                tensors.push(("running_var".into(), vec![place.channels], var.to_vec()));
            }
            if let Some((field, ..)) = tensors.iter().find(|t| t.2.iter().any(|v| !v.is_finite())) {
                return Err(Error::Failed(format!(
                    "parameter {}.{field} contains NaN or infinity, so no model is written. The last good model is kept. Try a smaller \
                     schedule.base_lr or a longer schedule.warmup_epochs",
                    layer.name
                )));
            }
            layers.push(LayerWeights { name: layer.name.clone(), kind: layer.kind, tensors });
        }
        Ok(layers)
    }

    /// Converts host buckets with the layout of the parameters to plain tensors with the parameters' names.
    pub fn tensors_of(&self, buckets: &[Vec<f32>]) -> Result<Vec<Tensor>, Error> {
        let params = self.layers.iter().flat_map(|layer| &layer.params);
        let plain = |p: &Param<B>| {
            let mut plain = vec![0.0; p.spec.elems()];
            p.format.unpack(&buckets[p.slot.bucket][p.slot.range()], &mut plain)?;
            Ok((p.name.clone(), p.spec.shape.clone(), plain))
        };
        params.map(plain).collect()
    }

    /// Converts device memory with the layout of the parameters, such as optimizer state, to plain tensors with the parameters' names and
    /// shapes.
    pub fn tensors(&self, arena: &Arena<B>) -> Result<Vec<Tensor>, Error> {
        let params = self.layers.iter().flat_map(|layer| &layer.params);
        params.map(|p| Ok((p.name.clone(), p.spec.shape.clone(), unpack(p, arena)?))).collect()
    }
}

fn copy<B: Backend>(p: &Param<B>) -> Param<B> {
    Param { name: p.name.clone(), spec: p.spec.clone(), node: p.node, format: p.format.clone(), slot: p.slot }
}

fn unpack<B: Backend>(p: &Param<B>, arena: &Arena<B>) -> Result<Vec<f32>, Error> {
    let mut plain = vec![0.0; p.spec.elems()];
    arena.unpack(&p.format, p.slot, &mut plain)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Activation, Add, Concat, Conv, Flatten, Id, Linear, Norm};

    /// Returns how a linear layer reads its flattened input. The input is made from two images by `join`, each with three channels of 2 x 2
    /// pixels.
    fn flatten(join: fn(&mut NetSpec, [Id; 2])) -> Option<[usize; 3]> {
        let mut net = NetSpec::new("x", Shape::image(1, 2, 2));
        let branches = ["a", "b"].map(|name| {
            let image = net.add(name, Conv::new(3, 1), net.image());
            net.add(&format!("{name}.flat"), Flatten, image)
        });
        join(&mut net, branches);
        let last = Id(net.nodes.len());
        net.add("fc", Linear::new(2), last);
        let shapes = net.shapes().unwrap();
        layer_kinds(&net, &shapes).pop().unwrap().unwrap().flatten
    }

    #[test]
    fn a_linear_layer_has_the_order_of_the_images_behind_it() {
        let sum = flatten(|net, both| {
            let sum = net.join("sum", Add, &both);
            net.add("relu", Activation::Relu, sum);
        });
        assert_eq!(sum, Some([3, 2, 2]));
        let plain = flatten(|net, [a, _]| {
            net.add("relu", Activation::Relu, a);
        });
        assert_eq!(plain, Some([3, 2, 2]));
    }

    #[test]
    fn mixed_orders_keep_the_network_order() {
        let joined = flatten(|net, both| {
            net.join("all", Concat, &both);
        });
        let normed = flatten(|net, [a, _]| {
            net.add("bn", Norm::new(), a);
        });
        let other = flatten(|net, [a, b]| {
            let b = net.add("other", Linear::new(12), b);
            net.join("sum", Add, &[a, b]);
        });
        assert_eq!([joined, normed, other], [None; 3]);
    }
}

//! From flat memory to plain tensors: names, shapes and layouts of a network, without its graph, so that another thread can do
//! the work while training goes on.

use backend::{Arena, Backend, ParamFormat};
use engine::{Graph, NormPlace, Param};
use formats::checkpoint::{LayerKind, LayerWeights, Tensor};

use crate::error::Error;
use crate::train::save::kind;

/// One layer with weights.
struct Layer<B: Backend> {
    name: String,
    kind: LayerKind,
    params: Vec<Param<B>>,
    norm: Option<NormPlace>,
}

/// The layers with weights of a network, in its order.
pub struct Exporter<B: Backend> {
    layers: Vec<Layer<B>>,
}

impl<B: Backend> Exporter<B> {
    /// Those of `graph`.
    pub fn of(graph: &Graph<B>) -> Self {
        let kinds = kind::of(graph.net(), graph.shapes());
        let layer = |(node, spec): (usize, &net::Node)| {
            let params: Vec<_> = graph.params().iter().filter(|p| p.node == node).map(copy).collect();
            let norm = graph.norms().iter().find(|n| n.node == node).copied();
            Some(Layer { name: spec.name.clone(), kind: kinds[node]?, params, norm })
        };
        Self { layers: graph.net().nodes.iter().enumerate().filter_map(layer).collect() }
    }

    /// Plain copies of all layers, out of an arena of the parameters' layout and running statistics. Fails if any value is not
    /// finite: such a file would only replace a good one.
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
                return Err(Error::NotFiniteParameter { name: format!("{}.{field}", layer.name) });
            }
            layers.push(LayerWeights { name: layer.name.clone(), kind: layer.kind, tensors });
        }
        Ok(layers)
    }

    /// Plain tensors, by the parameters' names, out of flat chunks on the host that lie as an arena of the parameters' layout.
    pub fn tensors_of(&self, chunks: &[Vec<f32>]) -> Result<Vec<Tensor>, Error> {
        let params = self.layers.iter().flat_map(|layer| &layer.params);
        let plain = |p: &Param<B>| {
            let mut plain = vec![0.0; p.spec.elems()];
            p.format.unpack(&chunks[p.slot.chunk][p.slot.range()], &mut plain)?;
            Ok((p.name.clone(), p.spec.shape.clone(), plain))
        };
        params.map(plain).collect()
    }

    /// Any other arena of the parameters' layout, by the parameters' names.
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

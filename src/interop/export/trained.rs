//! A network with its weights, as exports take it.

use std::collections::BTreeMap;

use super::error::Error;
use super::network::Network;
use crate::checkpoint::{LayerWeights, ModelFile};
use crate::nn::spec::{NetSpec, Node, Op};

/// A network with its weights.
pub struct Trained {
    /// The network.
    pub(super) network: Network,
    /// Weights by the names of their layers.
    pub(super) layers: BTreeMap<String, LayerWeights>,
    /// Everything of the model but its weights.
    pub(super) model: ModelFile,
}

/// A tensor of a layer.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    /// PyTorch's name, such as `weight`.
    pub field: &'a str,
    /// Its shape in PyTorch's layout.
    pub shape: &'a [usize],
    /// In C order.
    pub values: &'a [f32],
}

impl Trained {
    /// Joins a network to a model's `layers`, which must be its own.
    ///
    /// # Errors
    /// [`Error::Network`] for a network that does not fit together.
    pub fn new(net: NetSpec, mut model: ModelFile) -> Result<Self, Error> {
        let layers = std::mem::take(&mut model.layers).into_iter().map(|layer| (layer.name.clone(), layer)).collect();
        model.ema.clear();
        Ok(Self { network: Network::new(net)?, layers, model })
    }

    /// Gives batch norms without a scale one of ones, for formats that want it.
    pub(super) fn with_scales(&mut self) {
        for node in &mut self.network.net.nodes {
            let Op::Norm(norm) = &mut node.op else { continue };
            let layer = self.layers.get_mut(&node.name).filter(|_| !norm.scale);
            let Some(layer) = layer else { continue };
            let channels = layer.tensors.first().map_or(0, |tensor| tensor.2.len());
            layer.tensors.insert(0, ("weight".into(), vec![channels], vec![1.0; channels]));
            norm.scale = true;
        }
    }

    /// The tensors of a layer in PyTorch's order.
    pub(super) fn tensors<'a>(&'a self, node: &Node) -> impl Iterator<Item = Values<'a>> + use<'a> {
        let layer = self.layers.get(&node.name);
        let tensors = layer.into_iter().flat_map(|layer| &layer.tensors);
        tensors.map(|(field, shape, values)| Values { field, shape, values })
    }
}

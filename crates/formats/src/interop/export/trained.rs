//! A network with its weights, ready to be exported.

use std::collections::BTreeMap;

use half::f16;
use loaders::Dtype;
use net::{Node, Op};

use super::format::{Error, Number};
use super::network::Network;
use crate::checkpoint::{LayerWeights, ModelFile};

pub struct Trained {
    pub(crate) network: Network,
    /// The layers' weights by layer name.
    pub(crate) layers: BTreeMap<String, LayerWeights>,
    /// The model file without its weights.
    pub(crate) model: ModelFile,
}

#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    /// Name of the tensor in PyTorch, such as `weight`.
    pub field: &'a str,
    /// The shape in PyTorch's layout.
    pub shape: &'a [usize],
    /// The values in C order.
    pub values: &'a [f32],
    /// True if an export in 16 bits keeps 32 bits for this tensor.
    pub wide: bool,
}

impl Values<'_> {
    /// Returns the type of this tensor in a file with weights of the type `weights`.
    pub fn number(&self, weights: Number) -> Number {
        if self.wide { Number::F32 } else { weights }
    }
}

impl Trained {
    /// Returns the error for a model that cannot be exported.
    pub(super) fn refusal(&self, why: String) -> Error {
        Error::Network { network: self.model.network.clone(), why }
    }

    /// Adds a scale of ones to each batch norm that has none, for formats that require one.
    pub(crate) fn with_scales(&mut self) {
        for node in &mut self.network.net.nodes {
            let Op::Norm(norm) = &mut node.op else { continue };
            let layer = self.layers.get_mut(&node.name).filter(|_| !norm.scale);
            let Some(layer) = layer else { continue };
            let channels = layer.tensors.first().map_or(0, |tensor| tensor.2.len());
            layer.tensors.insert(0, ("weight".into(), vec![channels], vec![1.0; channels]));
            norm.scale = true;
        }
    }

    /// Changes the last layer's predictions from standardised numbers to numbers in the targets' units. Does nothing if
    /// labels are classes.
    ///
    /// # Errors
    /// Returns [`Error::Network`] if the last layer is not a linear layer with a bias and without ReLU.
    pub(crate) fn restore_targets(&mut self) -> Result<(), Error> {
        let (targets, nodes) = (&self.model.targets, &self.network.net.nodes);
        let last = nodes.last().filter(|node| matches!(&node.op, Op::Linear(linear) if linear.bias && !linear.relu));
        let layer = last.and_then(|node| self.layers.get_mut(&node.name));
        let why = || Error::Network {
            network: self.model.network.clone(),
            why: "the model predicts standardised targets, and an export puts their mean and deviation into the last \
                  layer, which must be a linear layer with a bias and without ReLU"
                .into(),
        };
        match (targets.is_empty(), layer) {
            (true, _) => Ok(()),
            (false, None) => Err(why()),
            (false, Some(layer)) => {
                layer.change_targets(targets, |value, target, offset| value * target.scale() + offset);
                Ok(())
            }
        }
    }

    /// Returns the tensors of a layer in PyTorch's order. Running statistics are wide, because they can be outside the
    /// range of 16 bits.
    pub(crate) fn tensors<'a>(&'a self, node: &Node) -> impl Iterator<Item = Values<'a>> + use<'a> {
        let layer = self.layers.get(&node.name);
        let tensors = layer.into_iter().flat_map(|layer| &layer.tensors);
        let (stored, has_targets) = (node.op.stored(), self.has_targets(&node.name));
        let running =
            move |field: &str| stored.and_then(|stored| stored.by_torch(field)).is_some_and(|(_, it)| it.running);
        tensors.map(move |(field, shape, values)| Values { field, shape, values, wide: has_targets || running(field) })
    }

    /// Returns true for the layer that computes numbers in the targets' units. It keeps 32 bits, because its bias has
    /// the targets' mean, and 16 bits can round that by more than the targets' deviation.
    pub(crate) fn has_targets(&self, layer: &str) -> bool {
        !self.model.targets.is_empty() && self.network.net.nodes.last().is_some_and(|last| last.name == layer)
    }

    /// Checks that no weight becomes infinite in 16 bits.
    ///
    /// # Errors
    /// Returns [`Error::Half`] with the first weight that does.
    pub(crate) fn fits_half(&self) -> Result<(), Error> {
        for node in &self.network.net.nodes {
            for tensor in self.tensors(node).filter(|tensor| tensor.number(Number::F16) == Number::F16) {
                let lost = |value: &&f32| value.is_finite() && f16::from_f32(**value).is_infinite();
                if let Some(value) = tensor.values.iter().find(lost) {
                    return Err(Error::Half { tensor: format!("{}.{}", node.name, tensor.field), value: *value });
                }
            }
        }
        Ok(())
    }
}

/// Returns what to do with pixels without data before the transforms, if the images can have such pixels.
pub(crate) fn fill_nodata(model: &ModelFile) -> Option<String> {
    let nodata = model.bands.nodata?;
    let unit = if model.bands.dtype == Dtype::U8 { " times 255" } else { "" };
    Some(format!("Before all transforms, replace {nodata} by the mean of its band (trireme.mean{unit})"))
}

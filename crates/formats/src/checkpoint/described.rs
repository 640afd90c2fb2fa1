//! What a model file says of its network beside names: for Keras, and for whoever builds it by hand.

use std::collections::BTreeMap;

/// A network, as other programs need it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// `model_config`: Keras's JSON of the network; none where Keras cannot express it.
    pub config: Option<String>,
    /// Names of the layers with weights in Keras's order; layers that are not in it come last.
    pub order: Vec<String>,
    /// What batch norms add to the variance, by the names of their layers.
    pub epsilon: BTreeMap<String, f32>,
}

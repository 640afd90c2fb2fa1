//! A trained network, as files hold it.

use std::collections::BTreeMap;

use super::keras::Tensor;
use super::layer_kind::LayerKind;

/// A trained network with all that is needed to use it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFile {
    /// Name in the catalogue, such as `resnet20`, or of the file that described it.
    pub network: String,
    /// Its description with every number, for a network of one's own; empty for one of the catalogue.
    pub definition: String,
    /// Shape of an input: channels, height, width.
    pub input: [usize; 3],
    /// Shape of the data set's images before any transform: channels, height, width; 0 and 0 if they may have any size.
    pub image: [usize; 3],
    /// Class names, in order of their labels.
    pub classes: Vec<String>,
    /// Whether images may have several classes, or none: scores are then those of each class by itself.
    pub multi_label: bool,
    /// Transforms from a decoded image to the input, as in the recipe's `augment.eval`.
    pub preprocess: Vec<String>,
    /// Mean per channel that `normalize` subtracts, of pixel / 255.
    pub mean: Vec<f64>,
    /// Standard deviation per channel that `normalize` divides by, of pixel / 255.
    pub std: Vec<f64>,
    /// The recipe as resolved, in TOML.
    pub recipe: String,
    /// Scores by name, such as `validation/top1`.
    pub scores: BTreeMap<String, f64>,
    /// Epochs done.
    pub epoch: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// Layers with weights, in the order Keras wants them (by depth in the graph, the first layer first).
    pub layers: Vec<LayerWeights>,
    /// The same layers with moving averages of their weights; empty if the run kept none.
    pub ema: Vec<LayerWeights>,
}

/// The weights of a layer, with PyTorch's names and layouts.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerWeights {
    /// Name as in PyTorch's state_dict, such as `layer1.0.conv1`.
    pub name: String,
    /// What the layer does.
    pub kind: LayerKind,
    /// Name (`weight`, `bias`, `running_mean`, `running_var`), shape and values in C order, in this order of names.
    pub tensors: Vec<Tensor>,
}

#[cfg(test)]
impl ModelFile {
    /// A small one, for tests.
    pub fn sample() -> Self {
        let layer = |name: &str| LayerWeights {
            name: name.into(),
            kind: LayerKind::named("linear").unwrap(),
            tensors: vec![("weight".into(), vec![2, 3], vec![0.5; 6]), ("bias".into(), vec![2], vec![0.25; 2])],
        };
        Self {
            network: "two".into(),
            definition: "nodes = []".into(),
            input: [3, 8, 8],
            image: [3, 8, 8],
            classes: vec!["cat".into(), "dog".into()],
            multi_label: false,
            preprocess: vec!["normalize".into()],
            mean: vec![0.5],
            std: vec![0.25],
            recipe: "model = \"two\"\n".into(),
            scores: BTreeMap::from([("test/top1".into(), 0.5)]),
            epoch: 1,
            step: 2,
            layers: vec![layer("fc1"), layer("fc2")],
            ema: vec![layer("fc1")],
        }
    }
}

//! A model file out of a network and the values that a file has for it.

use std::collections::BTreeMap;

use engine::graph::BuildError;
use formats::checkpoint::{LayerKind, LayerWeights, ModelFile};
use formats::interop::Weights;
use loaders::{Images, Pipeline};
use net::NetSpec;
use net::Node;

use crate::error::Error;
use crate::train::init::fit::{Fit, Taken};
use crate::train::save::kind;

/// All that the model file says beside weights.
pub fn head(model: &str, classes: Vec<String>, pipeline: &Pipeline) -> Result<ModelFile, Error> {
    let (input, ops) = (pipeline.output(), pipeline.ops());
    let (mean, std) = scale(&ops, input.channels as usize);
    let image = match pipeline.input() {
        Images::Fixed(image) => [image.channels, image.height, image.width],
        Images::Varied { channels } => [channels, 0, 0],
    };
    let text = |value: &str| toml::Value::String(value.into());
    let eval = toml::Table::from_iter([("eval".to_string(), ops.iter().map(|op| text(op)).collect::<Vec<_>>().into())]);
    let recipe = toml::Table::from_iter([("model".to_string(), text(model)), ("augment".to_string(), eval.into())]);
    Ok(ModelFile {
        network: model.into(),
        definition: String::new(),
        input: [input.channels, input.height, input.width].map(|n| n as usize),
        image: image.map(|n| n as usize),
        classes,
        multi_label: false,
        preprocess: ops,
        mean,
        std,
        recipe: recipe.to_string(),
        scores: BTreeMap::new(),
        epoch: 0,
        step: 0,
        layers: Vec::new(),
        ema: Vec::new(),
    })
}

/// Mean and standard deviation per channel of the last `normalize(...)` with all its numbers; 0 and 1 without one.
fn scale(ops: &[String], channels: usize) -> (Vec<f64>, Vec<f64>) {
    let numbers = ops.iter().rev().find_map(|op| op.strip_prefix("normalize(")?.strip_suffix(')'));
    let numbers: Vec<f64> =
        numbers.into_iter().flat_map(|text| text.split(',')).flat_map(|n| n.trim().parse()).collect();
    let (mean, std) = numbers.split_at(numbers.len() / 2);
    let of = |half: &[f64], other: f64| match half {
        [] => vec![other; channels],
        [one] => vec![*one; channels],
        all => all.to_vec(),
    };
    (of(mean, 0.0), of(std, 1.0))
}

/// The layers of the network with the file's values.
pub fn layers(net: &NetSpec, fit: &Fit, weights: &Weights) -> Result<Vec<LayerWeights>, Error> {
    let taken: BTreeMap<&str, Taken<'_>> = fit.taken(weights).collect();
    let shapes = net.shapes().map_err(BuildError::from)?;
    let layer = |(node, kind): (&Node, Option<LayerKind>)| {
        let kind = kind?;
        let tensor = |field: &str| {
            let Taken { shape, values } = *taken.get(format!("{}.{field}", node.name).as_str())?;
            Some((field.to_string(), shape.to_vec(), values.to_vec()))
        };
        let tensors = kind.stored.tensors.iter().filter_map(|stored| tensor(stored.torch)).collect();
        Some(LayerWeights { name: node.name.clone(), kind, tensors })
    };
    Ok(net.nodes.iter().zip(kind::of(net, &shapes)).filter_map(layer).collect())
}

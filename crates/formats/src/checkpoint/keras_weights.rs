//! Reads the file in which the child process stores the weights of a Keras file: one array per weight, the list of
//! names, and the facts from the model config that are needed to interpret them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::checksum;
use super::error::Error;
use super::keras::Tensor;
use super::reader::group;

/// The group with the arrays. They are named 0, 1, ...: the positions of their names in [`NAMES`].
pub(super) const GROUP: &str = "weights";

/// The attribute of [`GROUP`] with the names of the weights.
pub(super) const NAMES: &str = "names";

/// Attributes of [`GROUP`]. Each stores the field of [`KerasWeights`] with the same name. In [`ABOUT`], each name is
/// followed by its text.
pub(super) const ABOUT: &str = "about";
pub(super) const EPSILONS: &str = "epsilons";
pub(super) const TURNED: &str = "turned";

#[derive(Debug)]
pub struct KerasWeights {
    /// Names, shapes and values as in the file.
    pub tensors: Vec<Tensor>,
    /// The distinct epsilons of all batch norms. Empty for a file that has only weights.
    pub epsilons: Vec<String>,
    /// Names of layers that flatten images in another order than (H, W, C).
    pub turned: Vec<String>,
    /// Texts by name: the attributes that an export by trireme has in the root.
    pub about: BTreeMap<String, String>,
}

/// Reads the file `copy`, which the child process wrote from the file `original`. Errors name the original.
///
/// # Errors
///
/// Returns an error if the copy was not written by [`rewrite_weights`](super::rewrite_weights).
pub fn read_weights(copy: &Path, original: &Path) -> Result<KerasWeights, Error> {
    let group = group::open(checksum::open(copy)?, original)?.open(GROUP)?;
    let named = |(number, name): (usize, String)| {
        let (shape, values) = group.array(&number.to_string())?;
        Ok((name, shape, values))
    };
    let tensors = group.texts(NAMES)?.into_iter().enumerate().map(named).collect::<Result<_, Error>>()?;
    let [epsilons, turned, about] = [EPSILONS, TURNED, ABOUT].map(|name| group.texts(name));
    let about = about?.as_chunks::<2>().0.iter().cloned().map(<(String, String)>::from).collect();
    Ok(KerasWeights { tensors, epsilons: epsilons?, turned: turned?, about })
}

// Facts from the `model_config` of a Keras model: the epsilons of its batch norms, and layers that flatten images in
// another order than (H, W, C).

/// Classes of Keras layers that do not change the order of dimensions.
const IN_PLACE: [&str; 12] = [
    "Activation",
    "ReLU",
    "LeakyReLU",
    "ELU",
    "Softmax",
    "Dropout",
    "SpatialDropout2D",
    "BatchNormalization",
    "LayerNormalization",
    "Rescaling",
    "ZeroPadding2D",
    "Cropping2D",
];

#[derive(Debug, Default, PartialEq)]
pub(super) struct ModelFacts {
    /// See [`KerasWeights::epsilons`].
    pub epsilons: Vec<String>,
    /// See [`KerasWeights::turned`].
    pub turned: Vec<String>,
}

/// Returns the facts in a model config. Empty if the text is not JSON or does not describe a model.
pub(super) fn model_facts(config: &str) -> ModelFacts {
    let mut facts = ModelFacts::default();
    if let Ok(model) = serde_json::from_str(config) {
        collect_facts(&model, &mut facts);
    }
    facts
}

/// A layer with the names of the layers that it reads.
struct Layer<'a> {
    class: &'a str,
    config: &'a Value,
    inputs: Vec<&'a str>,
}

/// Adds the facts of a model, including nested models.
fn collect_facts(model: &Value, facts: &mut ModelFacts) {
    let Some(list) = model["config"]["layers"].as_array() else { return };
    let names: BTreeSet<&str> = list.iter().filter_map(name).collect();
    let mut layers = BTreeMap::new();
    let mut before = None;
    for layer in list {
        collect_facts(layer, facts);
        let (Some(class), Some(name)) = (layer["class_name"].as_str(), name(layer)) else { continue };
        let mut inputs = Vec::new();
        match layer.get("inbound_nodes") {
            Some(nodes) => collect_names(nodes, &names, &mut inputs),
            // A sequential model: each layer reads the previous one.
            None => inputs.extend(before),
        }
        before = Some(name);
        layers.insert(name, Layer { class, config: &layer["config"], inputs });
        if class == "BatchNormalization"
            && let Some(epsilon) = layer["config"]["epsilon"].as_f64()
            && !facts.epsilons.contains(&epsilon.to_string())
        {
            facts.epsilons.push(epsilon.to_string());
        }
    }
    let turned = layers.iter().filter(|(_, layer)| flattens(layer) && is_turned(layer, &layers));
    facts.turned.extend(turned.map(|(name, _)| name.to_string()));
}

fn name(layer: &Value) -> Option<&str> {
    layer["config"]["name"].as_str().or(layer["name"].as_str())
}

/// Adds all strings in a value that are in `names`, at any depth. Keras 2 and 3 list a layer's inputs in different
/// ways.
fn collect_names<'a>(value: &'a Value, names: &BTreeSet<&str>, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if names.contains(text.as_str()) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names, found)),
        Value::Object(items) => items.values().for_each(|item| collect_names(item, names, found)),
        _ => {}
    }
}

/// Returns true if a layer turns images into vectors.
fn flattens(layer: &Layer<'_>) -> bool {
    let sizes = layer.config["target_shape"].as_array().map_or(0, Vec::len);
    layer.class == "Flatten" || (layer.class == "Reshape" && sizes == 1)
}

/// Returns true if the images that the layer reads are not (H, W, C): either another layer permuted them, or a
/// convolution of the model has another `data_format` than the layer.
fn is_turned(layer: &Layer<'_>, layers: &BTreeMap<&str, Layer<'_>>) -> bool {
    let format = |layer: &Layer<'_>| layer.config["data_format"].as_str().unwrap_or("channels_last").to_string();
    let own = format(layer);
    if layers.values().any(|other| other.class.contains("Conv2D") && format(other) != own) {
        return true;
    }
    // Walks back to the layers that determine the order. `order` has, for each dimension that `layer` reads, its number
    // in the output of the layer that was reached.
    let mut next: Vec<(&str, [usize; 3])> = layer.inputs.iter().map(|input| (*input, UNCHANGED)).collect();
    let mut seen = BTreeSet::new();
    while let Some((input, order)) = next.pop() {
        let Some(before) = layers.get(input).filter(|_| seen.insert((input, order))) else { continue };
        let permutes = before.class == "Permute";
        let Some(order) = (if permutes { order_before(before, order) } else { Some(order) }) else { return true };
        if (permutes || IN_PLACE.contains(&before.class)) && !before.inputs.is_empty() {
            next.extend(before.inputs.iter().map(|input| (*input, order)));
        } else if order != UNCHANGED {
            return true;
        }
    }
    false
}

/// The dimensions of an image in their original order.
const UNCHANGED: [usize; 3] = [0, 1, 2];

/// Returns the numbers that dimensions of a `Permute` layer's output have in its input. Returns `None` if the layer does
/// not permute the three dimensions of an image.
fn order_before(permute: &Layer<'_>, order: [usize; 3]) -> Option<[usize; 3]> {
    let dims: Vec<usize> =
        permute.config["dims"].as_array()?.iter().filter_map(|d| Some(d.as_u64()? as usize)).collect();
    let is_permutation = dims.len() == 3 && (1..=3).all(|d| dims.contains(&d));
    is_permutation.then(|| order.map(|d| dims[d] - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the facts of a sequential model whose layers have these classes and constructor arguments.
    fn sequence(layers: &[(&str, Value)]) -> ModelFacts {
        let layer = |(i, (class, config)): (usize, &(&str, Value))| {
            let mut config = config.clone();
            config["name"] = format!("l{i}").into();
            json!({"class_name": class, "config": config})
        };
        let layers: Vec<Value> = layers.iter().enumerate().map(layer).collect();
        model_facts(&json!({"class_name": "Sequential", "config": {"layers": layers}}).to_string())
    }

    #[test]
    fn flattened_channel_order_is_found_in_the_keras_config() {
        let conv = |format: &str| ("Conv2D", json!({"data_format": format}));
        let flatten = |format: &str| ("Flatten", json!({"data_format": format}));
        let permute = |dims: [usize; 3]| ("Permute", json!({"dims": dims}));
        let (last, first) = ("channels_last", "channels_first");
        let none = Vec::<String>::new();
        assert_eq!(sequence(&[conv(last), flatten(last)]).turned, none);
        assert_eq!(sequence(&[conv(first), flatten(first)]).turned, none);
        assert_eq!(sequence(&[conv(first), flatten(last)]).turned, ["l1"]);
        assert_eq!(sequence(&[conv(last), permute([3, 1, 2]), ("ReLU", json!({})), flatten(last)]).turned, ["l3"]);
        assert_eq!(sequence(&[permute([3, 1, 2]), ("Reshape", json!({"target_shape": [-1]}))]).turned, ["l1"]);
        assert_eq!(sequence(&[permute([3, 1, 2]), ("Reshape", json!({"target_shape": [1, 1, 9]}))]).turned, none);
        // The order of a convolution's output does not depend on earlier permutations. Two opposite permutations cancel
        // out.
        assert_eq!(sequence(&[permute([3, 1, 2]), conv(last), flatten(last)]).turned, none);
        assert_eq!(sequence(&[permute([3, 1, 2]), permute([2, 3, 1]), flatten(last)]).turned, none);
        let padded = ("ZeroPadding2D", json!({}));
        let there = [conv(last), permute([3, 1, 2]), padded, permute([2, 3, 1]), flatten(last)];
        assert_eq!(sequence(&there).turned, none);
        // A lone permutation is refused, whichever it is, and so are two that do not cancel out.
        assert_eq!(sequence(&[conv(last), permute([2, 3, 1]), flatten(last)]).turned, ["l2"]);
        assert_eq!(sequence(&[permute([2, 3, 1]), flatten(last)]).turned, ["l1"]);
        assert_eq!(sequence(&[conv(last), permute([2, 3, 1]), permute([2, 3, 1]), flatten(last)]).turned, ["l3"]);
        let thrice = [conv(last), permute([2, 3, 1]), permute([2, 3, 1]), permute([2, 3, 1]), flatten(last)];
        assert_eq!(sequence(&thrice).turned, none);
        assert_eq!(sequence(&[("Permute", json!({"dims": [2, 1]})), flatten(last)]).turned, ["l1"]);
    }

    #[test]
    fn configs_of_keras_2_and_3_and_nested_models_are_read() {
        let layer = |class: &str, name: &str, config: Value, nodes: Value| {
            let mut config = config;
            config["name"] = name.into();
            json!({"class_name": class, "name": name, "config": config, "inbound_nodes": nodes})
        };
        let of_3 = json!([{"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["turn", 0, 0]}}]}]);
        for nodes in [json!([[["turn", 0, 0, {}]]]), of_3] {
            let layers = [
                layer("Permute", "turn", json!({"dims": [3, 1, 2]}), json!([])),
                layer("Flatten", "flat", json!({}), nodes),
                layer("Flatten", "other", json!({}), json!([])),
            ];
            let model = json!({"class_name": "Functional", "config": {"layers": layers}});
            assert_eq!(model_facts(&model.to_string()).turned, ["flat"]);
            let outer = [model, json!({"class_name": "BatchNormalization", "config": {"name": "a", "epsilon": 0.001}})];
            let outer = json!({"class_name": "Sequential", "config": {"layers": outer}});
            let found = model_facts(&outer.to_string());
            assert_eq!((found.turned, found.epsilons), (vec!["flat".to_string()], vec!["0.001".to_string()]));
        }
        assert_eq!(model_facts("no JSON"), ModelFacts::default());
        assert_eq!(model_facts("[1]"), ModelFacts::default());
    }
}

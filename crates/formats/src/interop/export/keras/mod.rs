//! Writes a network as layers of Keras 2 and 3, in `.h5` or `.keras` files.
//!
//! - `layers`: builds the model.
//!
//! Images are (N, H, W, C) in Keras. The output is probabilities, as in Keras's own applications.

pub(crate) mod layers;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use layers::Layers;
use loaders::LabelKind;
use loaders::safe_create::NewFile;
use net::{FeatureOrder, NetSpec, Op};
use serde_json::json;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use super::format::{Error, Number};
use super::network::Network;
use super::plan::plan;
use super::trained::Trained;
use crate::checkpoint::{Described, KerasFile, KerasLayer, keras};
use crate::interop::ops::mapping;

/// The reason for rejecting a layer if Keras would order its features or the inputs of its weights differently.
const MIXED: &str =
    "it reads a flattened image, and Keras flattens images in another order. Use --to onnx or safetensors";

/// Returns a network's Keras description for `model.h5`. The label kind determines the last activation. If Keras cannot
/// express the network, `config` is `None`.
///
/// # Errors
/// Returns [`Error::Network`] if the layers do not fit together.
pub fn describe(net: &NetSpec, labels: LabelKind) -> Result<Described, Error> {
    let built = match build(&plan(net.clone())?, labels) {
        Ok(layers) => Some((layers.config(&net.name).to_string(), layers.weighted())),
        Err(Error::Op { .. }) => None,
        Err(error) => return Err(error),
    };
    let (config, order) = built.map_or((None, Vec::new()), |(config, order)| (Some(config), order));
    let epsilon = net.nodes.iter().filter_map(|node| match &node.op {
        Op::Norm(norm) => Some((node.name.clone(), norm.eps)),
        _ => None,
    });
    Ok(Described { config, order, epsilon: epsilon.collect() })
}

/// Writes a network to `path`. The ending of the name, `.keras` or `.h5`, selects the format.
pub(super) fn write(trained: &Trained, path: &Path, number: Number) -> Result<(), Error> {
    let layers = build(&trained.network, trained.model.label_kind())?;
    let convert = |name: String| {
        let layer = trained.layers.get(&name);
        let refuse = |why: String| trained.refusal(format!("layer {name}: {why}"));
        let layer = layer.ok_or_else(|| refuse("its weights are missing".into()))?;
        let tensors = keras::to_keras(layer.kind, &layer.tensors).map_err(refuse)?;
        let half = number == Number::F16 && !trained.has_targets(&name);
        Ok(KerasLayer { name: keras::layer_name(&name), tensors, half })
    };
    let weights = layers.weighted().into_iter().map(convert).collect::<Result<Vec<_>, Error>>()?;
    let config = layers.config(&trained.model.network);
    let file = KerasFile { config: config.to_string(), layers: weights, about: trained.model.metadata() };
    match path.extension().is_some_and(|ending| ending == "keras") {
        true => write_archive(&layers, &file, path),
        false => Ok(file.write(path)?),
    }
}

fn build(network: &Network, labels: LabelKind) -> Result<Layers, Error> {
    let mut layers = Layers::new(network.net.input);
    let orders = network.net.feature_orders(&network.shapes);
    let mut tensors = vec![layers.input()];
    for layer in network.layers() {
        let node = layer.node;
        if !layer.serving {
            tensors.push(layers.input());
            continue;
        }
        let inputs = node.inputs.iter().enumerate();
        let inputs: Vec<usize> = inputs.map(|(i, id)| layers::turned(&mut layers, &layer, i, tensors[id.0])).collect();
        let refuse = |why| Error::Op { layer: node.name.clone(), kind: node.op.kind(), format: "Keras", why };
        let order = orders[layer.index + 1];
        if order == FeatureOrder::Mixed || (network.is_last(&layer) && !order.is_same()) {
            return Err(refuse(MIXED.into()));
        }
        let made = mapping(&node.op).to_keras(&mut layers, &layer, &inputs);
        tensors.push(made.map_err(refuse)?);
    }
    let last = &network.net.nodes[network.net.nodes.len() - 1];
    let plain = matches!(&last.op, Op::Linear(linear) if !linear.relu);
    let activation = match labels {
        LabelKind::OneClass => "softmax",
        LabelKind::Classes => "sigmoid",
        LabelKind::Numbers => "linear",
    };
    let mut end = tensors[network.net.nodes.len()];
    if !network.ends_flat() {
        end = layers.add("scores", "Flatten", json!({}), &[end]);
    }
    layers.finish(end, plain, activation);
    Ok(layers)
}

/// The Keras version that introduced the layout of `.keras` files.
const KERAS: &str = "3.0.0";

fn write_archive(layers: &Layers, file: &KerasFile, path: &Path) -> Result<(), Error> {
    let refuse = |source| Error::Io { path: path.to_path_buf(), source };
    let weights = file.weights_alone(path, &places(layers))?;
    let archive = || {
        let mut new = NewFile::beside(path)?;
        let mut zip = ZipWriter::new(new.file()?);
        // stored without compression and time, so that equal models give equal bytes
        let plain = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::default());
        let parts = [
            ("metadata.json", json!({"keras_version": KERAS, "about": file.about}).to_string().into_bytes()),
            ("config.json", config(file)?.into_bytes()),
            ("model.weights.h5", weights),
        ];
        for (name, bytes) in parts {
            zip.start_file(name, plain.large_file(bytes.len() > u32::MAX as usize)).map_err(std::io::Error::other)?;
            zip.write_all(&bytes)?;
        }
        zip.finish().map_err(std::io::Error::other)?;
        new.publish().map(drop)
    };
    archive().map_err(refuse)
}

/// Returns the config in the form of `.keras` files.
fn config(file: &KerasFile) -> std::io::Result<String> {
    let mut config: serde_json::Value = serde_json::from_str(&file.config)?;
    // Keras 2 and 3 both know the class under this name
    config["class_name"] = "Model".into();
    config["module"] = "keras".into();
    config["registered_name"] = serde_json::Value::Null;
    Ok(config.to_string())
}

/// For each layer with weights, returns the name of its group in the archive. A group is named after the layer's class,
/// with a number in the order of the model's layers.
fn places(layers: &Layers) -> BTreeMap<String, String> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut place = |class: &str| {
        let name = snake_case(class);
        let count = used.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}_{}", *count - 1) }
    };
    let all: Vec<_> = layers.in_order().map(|layer| (layer, place(layer.class))).collect();
    all.into_iter()
        .filter(|(layer, _)| layer.weights.is_some())
        .map(|(layer, place)| (layer.name.clone(), place))
        .collect()
}

/// Converts a class name as Keras does: `Conv2D` to `conv2d`, `BatchNormalization` to `batch_normalization`.
fn snake_case(class: &str) -> String {
    let mut name = String::new();
    let letters: Vec<char> = class.chars().collect();
    for (i, &c) in letters.iter().enumerate() {
        let before_small = letters.get(i + 1).is_some_and(char::is_ascii_lowercase);
        if i > 0 && c.is_ascii_uppercase() && before_small {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Activation, Add, Concat, Conv, Flatten, Linear, Norm, Pool, Shape};

    /// Returns true if Keras can express a linear layer after the op `join` of two flattened images of `pixels` by
    /// `pixels`.
    fn has_form(pixels: usize, join: impl Into<Op>) -> bool {
        let mut net = NetSpec::new("x", Shape::image(1, pixels, pixels));
        let branches = ["a", "b"].map(|name| {
            let image = net.add(name, Conv::new(3, 1), net.image());
            net.add(&format!("{name}.flat"), Flatten, image)
        });
        let join = join.into();
        let inputs = if join.arity() == Some(1) { &branches[..1] } else { &branches[..] };
        let joined = net.join("join", join, inputs);
        net.add("fc", Linear::new(2), joined);
        describe(&net, LabelKind::OneClass).unwrap().config.is_some()
    }

    /// Vectors become images if a convolution reads them. Images of one pixel become vectors if another input is a
    /// vector, and at the end of the network.
    #[test]
    fn inputs_are_reshaped_to_the_rank_that_layers_expect() {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let mean = net.add("mean", Pool::global(), net.image());
        let fc = net.add("fc", Linear::new(3), mean);
        let sum = net.join("sum", Add, &[mean, fc]);
        net.add("head", Conv::new(2, 1), sum);
        let config = build(&plan(net).unwrap(), LabelKind::OneClass).unwrap().config("x");
        let layers = config["config"]["layers"].as_array().unwrap();
        let classes: Vec<&str> = layers.iter().map(|layer| layer["class_name"].as_str().unwrap()).collect();
        let want = "InputLayer GlobalAveragePooling2D Flatten Dense Flatten Add Reshape Conv2D Flatten Activation";
        assert_eq!(classes.join(" "), want);
        assert_eq!(layers[5]["inbound_nodes"], json!([[["sum_flatten", 0, 0, {}], ["fc", 0, 0, {}]]]));
        assert_eq!(layers[6]["config"]["target_shape"], json!([1, 1, 3]));
    }

    #[test]
    fn leaky_relu_slopes_unsupported_by_keras_are_refused() {
        let has_form = |slope: f32| {
            let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
            let leaky = net.add("leaky", Activation::LeakyRelu(slope), net.image());
            net.add("fc", Linear::new(2), leaky);
            describe(&net, LabelKind::OneClass).unwrap().config.is_some()
        };
        assert!(has_form(0.2) && has_form(0.0) && has_form(1.5) && !has_form(-0.2));
    }

    #[test]
    fn flattened_features_that_keras_would_reorder_are_refused() {
        assert!(has_form(2, Add));
        assert!(!has_form(2, Concat) && !has_form(2, Norm::new()));
        // if there is one pixel or one channel, (C, H, W) and (H, W, C) are the same order
        assert!(has_form(1, Add) && has_form(1, Concat) && has_form(1, Norm::new()));
        let mut grey = NetSpec::new("x", Shape::image(1, 2, 2));
        let flat = grey.add("flat", Flatten, grey.image());
        let norm = grey.add("norm", Norm::new(), flat);
        grey.add("fc", Linear::new(2), norm);
        assert!(describe(&grey, LabelKind::OneClass).unwrap().config.is_some());
        // the scores are a flattened image
        let mut net = NetSpec::new("x", Shape::image(3, 2, 2));
        net.add("flat", Flatten, net.image());
        let error = build(&plan(net).unwrap(), LabelKind::OneClass).err().expect("an export of mixed features");
        let Error::Op { layer, kind: "flatten", format: "Keras", why } = &error else { panic!("{error}") };
        assert!(layer == "flat" && why.contains("--to onnx"), "{error}");
    }

    #[test]
    fn snake_case_matches_keras_class_names() {
        let cases = ["Conv2D", "BatchNormalization", "Dense"].map(snake_case);
        assert_eq!(cases, ["conv2d", "batch_normalization", "dense"]);
    }
}

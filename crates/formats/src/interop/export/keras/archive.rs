//! `.keras` files: a zip archive of the network as JSON and the weights as HDF5, in the layout of Keras 3, which Keras 2.12 and later read.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use loaders::safe_create::NewFile;
use serde_json::json;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use super::super::error::Error;
use super::layers::Layers;
use crate::checkpoint::KerasFile;

/// The version whose layout this is.
const KERAS: &str = "3.0.0";

/// Writes the archive.
pub(super) fn write(layers: &Layers, file: &KerasFile, path: &Path) -> Result<(), Error> {
    let refuse = |source| Error::Io { path: path.to_path_buf(), source };
    let weights = file.weights_alone(path, &places(layers))?;
    let archive = || {
        let mut new = NewFile::beside(path)?;
        let mut zip = ZipWriter::new(new.file()?);
        // stored, with no time: equal models are equal bytes
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

/// The network as this format has it.
fn config(file: &KerasFile) -> std::io::Result<String> {
    let mut config: serde_json::Value = serde_json::from_str(&file.config)?;
    // the class that both versions know under this name
    config["class_name"] = "Model".into();
    config["module"] = "keras".into();
    config["registered_name"] = serde_json::Value::Null;
    Ok(config.to_string())
}

/// Where the weights of each layer stand: by its class, numbered in the order of the model's layers.
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

/// As Keras makes names of classes: `Conv2D` is `conv2d`, `BatchNormalization` is `batch_normalization`.
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
    use super::snake_case;

    #[test]
    fn classes_are_named_as_keras_names_them() {
        let cases = ["Conv2D", "BatchNormalization", "Dense"].map(snake_case);
        assert_eq!(cases, ["conv2d", "batch_normalization", "dense"]);
    }
}

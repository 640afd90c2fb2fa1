//! `model.h5`: its layout.
//!
//! Weights stand in Keras's legacy layout: group `model_weights` with the attribute `layer_names`; a group per layer with
//! `weight_names`; arrays `<layer>/kernel:0` and so on inside it. Beside Keras's, a layer's group has the attributes
//! `trireme_kind` (`conv`, `linear`, `norm`) and, behind a flatten, `trireme_flatten` (C, H, W). Group `trireme` has
//! attributes for the rest, and the groups `scores` with an attribute a score and, if the run kept averages, `ema`: their
//! layers, laid out as `model_weights`.
//! The file holds no time, host, rank count or speed, and equal models make equal bytes.

use std::collections::BTreeSet;
use std::path::Path;

use super::error::Error;
use super::h5::{Group, H5File};
use super::head::{read_head, three};
use super::keras::{self, Tensor};
use super::layer_kind::LayerKind;
use super::model::{LayerWeights, ModelFile};
use super::reader::{self, group};
use super::{atomic, checksum, state_file};

/// A Keras version whose layout this is; Keras takes a file without for one of Keras 1.
const KERAS_VERSION: &str = "2.15.0";

impl ModelFile {
    /// Writes the file: a temporary one beside, fsync, rename, fsync of the folder, which must exist.
    ///
    /// # Errors
    /// [`Error::Layer`] for weights that do not fit their kind, else what the disk refused. On any error nothing is left
    /// behind, and a file that stood there before is untouched.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let weights = [to_keras(&self.layers)?, to_keras(&self.ema)?];
        let bytes = weights.iter().flatten().flatten().map(|(_, _, values)| 4 * values.len() as u64).sum();
        atomic::replace(path, bytes, |new| {
            let file = H5File::create(&new.name())?;
            let written = self.fill(&file.root()?, &weights);
            written.and(file.close())?;
            checksum::append(&new.name())
        })
    }

    /// Reads a file that [`ModelFile::write`] wrote, or the model in a checkpoint.
    ///
    /// # Errors
    /// For a file that is missing, cut short, changed, of another kind or of a later version.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let root = group::open(checksum::open(path)?, path)?;
        if state_file::is_state(&root) {
            return state_file::read_model(path, &root);
        }
        if !root.has("trireme") || !root.has("model_weights") {
            let text = "an HDF5 file without the groups trireme and model_weights".into();
            return Err(Error::Foreign { path: path.to_path_buf(), text });
        }
        let content = |text| Error::Content { path: path.to_path_buf(), text };
        let ours = root.open("trireme")?;
        let head = read_head(path, &ours)?;
        let layers = read_layers(&root.open("model_weights")?, &content)?;
        let ema = if ours.has("ema") { read_layers(&ours.open("ema")?, &content)? } else { Vec::new() };
        Ok(Self { layers, ema, ..head })
    }

    fn fill(&self, root: &Group, [weights, ema]: &[Vec<Vec<Tensor>>; 2]) -> Result<(), Error> {
        let group = root.create("model_weights")?;
        for place in [root, &group] {
            place.put_text("backend", "tensorflow")?;
            place.put_text("keras_version", KERAS_VERSION)?;
        }
        write_layers(&group, &self.layers, weights)?;
        let ours = root.create("trireme")?;
        self.put_head(&ours)?;
        if !ema.is_empty() {
            write_layers(&ours.create("ema")?, &self.ema, ema)?;
        }
        Ok(())
    }
}

/// Each layer's tensors in Keras's names and layouts; refuses what could not be read back.
fn to_keras(layers: &[LayerWeights]) -> Result<Vec<Vec<Tensor>>, Error> {
    let mut seen = BTreeSet::new();
    let convert = |layer: &LayerWeights| {
        let name = layer.name.as_str();
        let refuse = |text| Error::Layer { layer: name.to_string(), text };
        if name.is_empty() || name == "." || name.contains(['/', '\0']) {
            return Err(refuse("a name in HDF5 is not empty, not a dot, and has no slash".into()));
        }
        if !seen.insert(name.to_string()) {
            return Err(refuse("two layers have this name".into()));
        }
        keras::to_keras(layer.kind, &layer.tensors).map_err(refuse)
    };
    layers.iter().map(convert).collect()
}

fn write_layers(group: &Group, layers: &[LayerWeights], weights: &[Vec<Tensor>]) -> Result<(), Error> {
    let names: Vec<String> = layers.iter().map(|layer| layer.name.clone()).collect();
    group.put_texts("layer_names", &names)?;
    layers.iter().zip(weights).try_for_each(|(layer, tensors)| write_layer(group, layer, tensors))
}

fn write_layer(group: &Group, layer: &LayerWeights, tensors: &[Tensor]) -> Result<(), Error> {
    let group = group.create(&layer.name)?;
    let names: Vec<String> = tensors.iter().map(|(name, ..)| format!("{}/{name}:0", layer.name)).collect();
    group.put_texts("weight_names", &names)?;
    group.put_text("trireme_kind", layer.kind.stored.kind)?;
    if let Some(chw) = layer.kind.flatten {
        group.put_numbers("trireme_flatten", &chw.map(|n| n as u64))?;
    }
    let inner = group.create(&layer.name)?;
    for (name, shape, values) in tensors {
        inner.put_array(&format!("{name}:0"), shape, values)?;
    }
    Ok(())
}

fn read_layers(group: &reader::Group, content: &dyn Fn(String) -> Error) -> Result<Vec<LayerWeights>, Error> {
    let mut layers = Vec::new();
    for name in group.texts("layer_names")? {
        let layer = group.open(&name)?;
        let kind = read_kind(&layer).map_err(|error| match error {
            Ok(error) => error,
            Err(text) => content(format!("layer {name}: {text}")),
        })?;
        let mut tensors = Vec::new();
        for weight in layer.texts("weight_names")? {
            let (shape, values) = layer.array(&weight)?;
            let tail = weight.rsplit('/').next().unwrap_or(&weight);
            tensors.push((tail.trim_end_matches(":0").to_string(), shape, values));
        }
        let tensors = keras::from_keras(kind, &tensors).map_err(|text| content(format!("layer {name}: {text}")))?;
        layers.push(LayerWeights { name, kind, tensors });
    }
    Ok(layers)
}

/// A layer's kind; fails with an error of the file, or with a text on what it holds.
fn read_kind(layer: &reader::Group) -> Result<LayerKind, Result<Error, String>> {
    let kind = LayerKind::named(&layer.text("trireme_kind").map_err(Ok)?).map_err(Err)?;
    let has_flatten = layer.attribute_names().any(|name| name == "trireme_flatten");
    if !kind.stored.depends_on_flatten() || !has_flatten {
        return Ok(kind);
    }
    let chw = layer.numbers("trireme_flatten").map_err(Ok)?;
    Ok(LayerKind { flatten: Some(three(&chw).map_err(Err)?), ..kind })
}

#[cfg(test)]
mod tests {
    use super::super::head::VERSION;
    use super::*;

    /// Reads a file that `fill` has made.
    fn read(name: &str, fill: impl FnOnce(&Group) -> Result<(), Error>) -> Error {
        let path = std::env::temp_dir().join(format!("trireme-{name}-{}.h5", std::process::id()));
        let file = H5File::create(&path).unwrap();
        fill(&file.root().unwrap()).unwrap();
        file.close().unwrap();
        checksum::append(&path).unwrap();
        let read = ModelFile::read(&path);
        std::fs::remove_file(&path).unwrap();
        read.unwrap_err()
    }

    #[test]
    fn a_file_without_our_groups_is_foreign() {
        let error = read("foreign", |root| root.create("model_weights").map(drop));
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }

    #[test]
    fn a_later_format_asks_for_a_newer_trireme() {
        let error = read("newer", |root| {
            root.create("model_weights")?;
            root.create("trireme")?.put_number("version", VERSION + 1)
        });
        assert!(error.to_string().contains("model format 2, this trireme reads up to 1"), "{error}");
    }

    #[test]
    fn a_missing_or_odd_part_is_named() {
        let error = read("missing", |root| {
            root.create("model_weights")?;
            root.create("trireme")?.put_number("version", VERSION)
        });
        assert!(error.to_string().contains("no attribute network at /trireme/"), "{error}");
        let error = read("kind", |root| {
            let weights = root.create("model_weights")?;
            weights.put_texts("layer_names", &["fc".into()])?;
            weights.create("fc")?.put_text("trireme_kind", "lstm")?;
            let ours = root.create("trireme")?;
            ours.put_number("version", VERSION)?;
            ["network", "recipe"].iter().try_for_each(|name| ours.put_text(name, ""))?;
            ours.put_numbers("input", &[3u64, 8, 8])?;
            ours.put_numbers("image", &[3u64, 8, 8])?;
            ["classes", "preprocess"].iter().try_for_each(|name| ours.put_texts(name, &[]))?;
            ["mean", "std"].iter().try_for_each(|name| ours.put_numbers(name, &[0.5]))?;
            ["epoch", "step"].iter().try_for_each(|name| ours.put_number(name, 1u64))?;
            ours.create("scores").map(drop)
        });
        assert!(
            error.to_string().contains(
                "layer fc: kind is one of conv, linear, norm, layer_norm, group_norm, layer_scale, got \"lstm\""
            ),
            "{error}"
        );
    }
}

//! The layout of `model.h5`.
//!
//! Weights are stored in Keras's legacy layout. The group `model_weights` has the attribute `layer_names`. It contains
//! one group per layer with the attribute `weight_names` and the arrays `<layer>/kernel:0` and so on. A layer's group
//! also has attributes of trireme:
//!
//! - `trireme_kind`: `conv`, `linear`, `norm` and so on
//! - `trireme_name`: the layer's name in the network, if it has dots, which Keras's name cannot have
//! - `trireme_flatten`: (C, H, W), if the layer follows a flatten
//! - `trireme_epsilon`: the epsilon of a batch norm
//!
//! The group `trireme` has the metadata as attributes. Its group `scores` has one attribute per score, `seal` has one
//! per part, and `ema` has the averaged layers in the layout of `model_weights`, if the run kept averages. If Keras can
//! express the network, the root has Keras's `model_config`.
//!
//! The file contains no time, host, rank count or speed, so equal models give equal files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::checksum::CheckedFile;
use super::error::Error;
use super::h5::{self, Group};
use super::keras::{self, LayerKind};
use super::keras_file::{Described, put_layer, put_versions};
use super::model::{LayerWeights, ModelFile, parse_chw, read_head};
use super::reader::{self, group};
use super::{atomic, checksum, state_file};

/// Attribute that lists layers outside Keras's network, such as auxiliary classifiers.
const HEADS: &str = "trireme_heads";

/// Describes a file that another program rewrote without a change to the model.
const UNCHANGED: &str = "all parts of the model are unchanged";

/// A model from a file, with a warning if another program changed the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    pub model: ModelFile,
    /// Describes the changes that another program made to the file. `None` if the file is as trireme wrote it.
    pub warning: Option<String>,
}

impl Opened {
    /// Returns the warning as a line about the file `path`.
    pub fn warning_line(&self, path: &Path) -> Option<String> {
        let path = path.display();
        Some(match self.warning.as_deref()? {
            UNCHANGED => {
                format!("warning: another program rewrote {path} after trireme wrote it, but the model is unchanged")
            }
            changes => format!("warning: another program changed {path} after trireme wrote it: {changes}"),
        })
    }
}

impl ModelFile {
    /// Writes the file atomically. The folder must exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Layer`] if weights do not fit their kind of layer, otherwise an error of the operating system
    /// or HDF5. An existing file is then unchanged, and no temporary file is left.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        self.write_described(path, &Described::default())
    }

    /// Works like [`ModelFile::write`], with information about the network for other programs.
    ///
    /// # Errors
    ///
    /// Returns errors like [`ModelFile::write`].
    pub fn write_described(&self, path: &Path, described: &Described) -> Result<(), Error> {
        check_names(&self.layers)?;
        check_names(&self.ema)?;
        let tensors = self.layers.iter().chain(&self.ema).flat_map(|layer| &layer.tensors);
        let bytes = tensors.map(|(_, _, values)| 4 * values.len() as u64).sum();
        atomic::replace(path, bytes, |new| {
            h5::write(new, |root| self.fill(root, described))?;
            checksum::append(&new.name())
        })
    }

    /// Reads a file written by [`ModelFile::write`], or the model in a checkpoint.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing, truncated or changed, or if it has another kind or a later version.
    /// Returns [`Error::Unsealed`] if another program wrote to it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        match Self::open(path)? {
            Opened { model, warning: None } => Ok(model),
            Opened { warning: Some(text), .. } => Err(Error::Unsealed { path: path.to_path_buf(), text }),
        }
    }

    /// Reads a file like [`ModelFile::read`]. If another program wrote to a model file, it is read anyway, with a
    /// warning.
    ///
    /// # Errors
    ///
    /// Returns errors like [`ModelFile::read`], except [`Error::Unsealed`] for a model file. Returns
    /// [`Error::Rewritten`] if another program rewrote the whole file.
    pub fn open(path: &Path) -> Result<Opened, Error> {
        Self::open_copy(path, path)
    }

    /// Opens the file `copy`, which was made from the file `path`. Errors name `path`, because the copy is temporary.
    ///
    /// # Errors
    ///
    /// Returns errors like [`ModelFile::open`].
    pub fn open_copy(copy: &Path, path: &Path) -> Result<Opened, Error> {
        let checked = checksum::open(copy)?;
        let sealed = checked.sealed;
        Self::open_checked(path, checked).map_err(|error| match error {
            Error::Layout { .. } if !sealed => Error::Rewritten { path: path.to_path_buf(), source: Box::new(error) },
            error => error,
        })
    }

    fn open_checked(path: &Path, checked: CheckedFile) -> Result<Opened, Error> {
        let sealed = checked.sealed;
        let root = group::open(checked, path)?;
        if state_file::is_checkpoint(&root) {
            checksum::require_checksum(sealed, path)?;
            return Ok(Opened { model: state_file::read_model(path, &root)?, warning: None });
        }
        let model = Self::read_model(path, &root)?;
        let warning = if sealed { None } else { Some(describe_changes(&model.unsealed(&root.open("trireme")?)?)) };
        Ok(Opened { model, warning })
    }

    fn read_model(path: &Path, root: &reader::Group) -> Result<Self, Error> {
        if !root.has("trireme") || !root.has("model_weights") {
            let text = "it is an HDF5 file without the groups trireme and model_weights".into();
            return Err(Error::Foreign { path: path.to_path_buf(), text });
        }
        let content = |text| Error::Content { path: path.to_path_buf(), text };
        let ours = root.open("trireme")?;
        let head = read_head(path, &ours)?;
        let layers = read_layers(&root.open("model_weights")?, &content)?;
        let ema = if ours.has("ema") { read_layers(&ours.open("ema")?, &content)? } else { Vec::new() };
        Ok(Self { layers, ema, ..head })
    }

    fn fill(&self, root: &Group, described: &Described) -> Result<(), Error> {
        let group = root.create("model_weights")?;
        put_versions(root, &group)?;
        if let Some(config) = &described.config {
            root.put_text("model_config", config)?;
        }
        write_layers(&group, &self.layers, described)?;
        let ours = root.create("trireme")?;
        self.put_head(&ours)?;
        if !self.ema.is_empty() {
            write_layers(&ours.create("ema")?, &self.ema, described)?;
        }
        self.put_seal(&ours)
    }
}

/// Returns an error for names of layers that could not be read back from a file.
fn check_names(layers: &[LayerWeights]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for layer in layers {
        let name = layer.name.as_str();
        let refuse = |text: &str| Err(Error::Layer { layer: name.to_string(), text: text.into() });
        if name.is_empty() || name == "." || name.contains(['/', '\0']) {
            return refuse("a name in HDF5 must not be empty or a dot, and must not contain a slash");
        }
        if !seen.insert(name) {
            return refuse("two layers have this name");
        }
    }
    Ok(())
}

fn write_layers(group: &Group, layers: &[LayerWeights], described: &Described) -> Result<(), Error> {
    let place: BTreeMap<&str, usize> = described.order.iter().map(String::as_str).zip(0..).collect();
    let mut ordered: Vec<&LayerWeights> = layers.iter().collect();
    // The sort is stable, so layers that are not in the order keep their positions.
    ordered.sort_by_key(|layer| place.get(layer.name.as_str()).copied().unwrap_or(usize::MAX));
    let names = keras_names(ordered.iter().map(|layer| layer.name.as_str()));
    // Layers that are not part of Keras's network, such as auxiliary classifiers, must not be in Keras's list.
    let outside =
        ordered.iter().filter(|layer| described.config.is_some() && !place.contains_key(layer.name.as_str())).count();
    let (network, heads) = names.split_at(names.len() - outside);
    group.put_texts("layer_names", network)?;
    if !heads.is_empty() {
        group.put_texts(HEADS, heads)?;
    }
    let mut each = ordered.into_iter().zip(&names);
    each.try_for_each(|(layer, name)| write_layer(group, name, layer, described))
}

/// Returns the layers' names in Keras. If two of them would be equal, returns the names in the network.
fn keras_names<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let names: Vec<String> = paths.clone().map(keras::layer_name).collect();
    let different: BTreeSet<&String> = names.iter().collect();
    if different.len() == names.len() { names } else { paths.map(String::from).collect() }
}

/// Converts a layer's tensors to Keras's names and layouts, and writes them. Only one layer is converted at a time,
/// because the converted tensors need as much memory as the layer.
fn write_layer(group: &Group, name: &str, layer: &LayerWeights, described: &Described) -> Result<(), Error> {
    let tensors =
        keras::to_keras(layer.kind, &layer.tensors).map_err(|text| Error::Layer { layer: layer.name.clone(), text })?;
    let group = group.create(name)?;
    group.put_text("trireme_kind", layer.kind.stored.kind)?;
    if name != layer.name {
        group.put_text("trireme_name", &layer.name)?;
    }
    if let Some(chw) = layer.kind.flatten {
        group.put_numbers("trireme_flatten", &chw.map(|n| n as u64))?;
    }
    if let Some(epsilon) = described.epsilon.get(&layer.name) {
        group.put_number("trireme_epsilon", *epsilon)?;
    }
    put_layer(&group, name, &tensors, false)
}

/// Describes which parts another program changed.
fn describe_changes(unsealed: &[String]) -> String {
    /// Maximum number of parts to list.
    const MAX_LISTED: usize = 8;
    match unsealed {
        [] => UNCHANGED.into(),
        [first @ .., _] if first.len() >= MAX_LISTED => {
            format!("changed parts: {} and {} more", unsealed[..MAX_LISTED].join(", "), unsealed.len() - MAX_LISTED)
        }
        _ => format!("changed parts: {}", unsealed.join(", ")),
    }
}

fn read_layers(group: &reader::Group, content: &dyn Fn(String) -> Error) -> Result<Vec<LayerWeights>, Error> {
    let mut layers = Vec::new();
    let heads = group.optional(HEADS, reader::Group::texts)?.unwrap_or_default();
    for name in group.texts("layer_names")?.into_iter().chain(heads) {
        let layer = group.open(&name)?;
        let kind = read_kind(&layer).map_err(|error| match error {
            Ok(error) => error,
            Err(text) => content(format!("layer {name}: {text}")),
        })?;
        let mut tensors = Vec::new();
        for weight in layer.texts("weight_names")? {
            let (shape, values) = layer.array(&weight)?;
            tensors.push((keras::field_name(&weight).to_string(), shape, values));
        }
        let tensors = keras::from_keras(kind, &tensors).map_err(|text| content(format!("layer {name}: {text}")))?;
        let name = layer.optional("trireme_name", reader::Group::text)?.unwrap_or(name);
        layers.push(LayerWeights { name, kind, tensors });
    }
    Ok(layers)
}

/// Reads a layer's kind. The error is either an error of the file or a text about invalid content.
fn read_kind(layer: &reader::Group) -> Result<LayerKind, Result<Error, String>> {
    let kind = LayerKind::named(&layer.text("trireme_kind").map_err(Ok)?).map_err(Err)?;
    if !kind.stored.depends_on_flatten() || !layer.has_attribute("trireme_flatten") {
        return Ok(kind);
    }
    let chw = layer.numbers("trireme_flatten").map_err(Ok)?;
    Ok(LayerKind { flatten: Some(parse_chw(&chw).map_err(Err)?), ..kind })
}

#[cfg(test)]
mod tests {
    use super::super::h5::H5File;
    use super::super::model::{NEWEST, VERSION};
    use loaders::{Bands, Dtype};

    use super::*;
    use crate::temporary::Temporary;

    /// Creates a file with `fill` and returns the error of reading it.
    fn read(fill: impl FnOnce(&Group) -> Result<(), Error>) -> Error {
        let Temporary(path) = &Temporary::new("model.h5");
        let file = H5File::create(path).unwrap();
        fill(&file.root().unwrap()).unwrap();
        file.close().unwrap();
        checksum::append(path).unwrap();
        ModelFile::read(path).unwrap_err()
    }

    #[test]
    fn a_file_without_our_groups_is_foreign() {
        let error = read(|root| root.create("model_weights").map(drop));
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }

    #[test]
    fn layers_missing_in_the_keras_order_are_listed_separately() {
        let (Temporary(path), model) = (&Temporary::new("heads.h5"), ModelFile::sample());
        let described = Described { config: Some("{}".into()), order: vec!["fc2".into()], ..Described::default() };
        model.write_described(path, &described).unwrap();
        let names = |name: &str| {
            let root = group::open(checksum::open(path).unwrap(), path).unwrap();
            root.open("model_weights").unwrap().texts(name).unwrap()
        };
        assert_eq!((names("layer_names"), names(HEADS)), (vec!["fc2".to_string()], vec!["fc1".to_string()]));
        let mut read = ModelFile::read(path).unwrap();
        read.layers.reverse();
        assert_eq!(read, model);
    }

    /// Percentiles of RGB images are kept, because `clip_percentile` needs them. The version does not change.
    #[test]
    fn band_descriptions_round_trip() {
        let Temporary(path) = &Temporary::new("bands.h5");
        let percentiles = [("1".to_string(), vec![0.1, 3.7, 1e-9]), ("99".to_string(), vec![250.3, 251.0, 255.0])];
        let model =
            ModelFile { bands: Bands { percentiles: percentiles.into(), ..Bands::default() }, ..ModelFile::sample() };
        let write_and_read = |model: &ModelFile| {
            model.write(path).unwrap();
            ModelFile::read(path)
        };
        assert_eq!(write_and_read(&model).unwrap().bands, model.bands);
        let bands = Bands { dtype: Dtype::U16, channels: Some(4), ..Bands::default() };
        let refused = write_and_read(&ModelFile { bands, ..model }).unwrap_err();
        let Error::Content { text, .. } = &refused else { panic!("{refused}") };
        assert!(text.contains("`channels` is 4") && text.contains("have 3"), "{text}");
    }

    #[test]
    fn a_later_format_asks_for_a_newer_trireme() {
        let error = read(|root| {
            root.create("model_weights")?;
            root.create("trireme")?.put_number("version", NEWEST + 1)
        });
        let text = error.to_string();
        let parts = [format!("model format {}", NEWEST + 1), format!("up to {NEWEST}:")];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn a_missing_or_unknown_part_is_named() {
        let error = read(|root| {
            root.create("model_weights")?;
            root.create("trireme")?.put_number("version", VERSION)
        });
        let missing = matches!(&error, Error::Content { text, .. } if text.contains("network at /trireme/"));
        assert!(missing, "{error}");
        let error = read(|root| {
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
        let Error::Content { text, .. } = &error else { panic!("{error}") };
        let parts = ["layer fc", "kind", "conv, linear", "\"lstm\""];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

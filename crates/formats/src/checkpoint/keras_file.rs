//! HDF5 files that only Keras reads: a whole model in the layout of Keras 2, and the weights inside a `.keras` archive.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use loaders::safe_create::NewFile;
use net::Op;

use super::atomic;
use super::error::Error;
use super::h5::{self, Group};
use super::keras::Tensor;

/// A version of Keras that uses this layout. If a file has no version, Keras assumes Keras 1.
const KERAS_VERSION: &str = "2.15.0";

/// A model in Keras's representation.
#[derive(Clone, Debug, PartialEq)]
pub struct KerasFile {
    /// `model_config`: the network as JSON.
    pub config: String,
    /// The layers with weights, in Keras's order.
    pub layers: Vec<KerasLayer>,
    /// Attributes of the root group with information from trireme.
    pub about: BTreeMap<String, String>,
}

/// A layer with Keras's names, layouts and order of tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct KerasLayer {
    pub name: String,
    /// The tensors with names such as `kernel`.
    pub tensors: Vec<Tensor>,
    /// True if values are stored as f16. Running statistics stay f32, because f16 may not be able to represent them.
    pub half: bool,
}

impl KerasFile {
    /// Writes the model like `keras.Model.save("model.h5")` of Keras 2, atomically.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system or of HDF5. An existing file is then unchanged.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        atomic::replace(path, self.bytes(), |new| h5::write(new, |root| self.fill(root)))
    }

    /// Returns the weights file of a Keras 3 archive. `places` maps the name of each layer to its name in the archive,
    /// whose arrays are `layers/PLACE/vars/0` and so on. Uses a temporary file next to `path`.
    ///
    /// # Errors
    ///
    /// Returns errors like [`KerasFile::write`].
    pub fn weights_alone(&self, path: &Path, places: &BTreeMap<String, String>) -> Result<Vec<u8>, Error> {
        let refuse = |source| Error::Io { action: "write", path: path.to_path_buf(), source };
        let mut new = NewFile::beside(path).map_err(refuse)?;
        h5::write(&mut new, |root| self.fill_weights(root, places))?;
        let mut bytes = Vec::new();
        new.file().and_then(|file| file.read_to_end(&mut bytes)).map_err(refuse)?;
        Ok(bytes)
    }

    fn bytes(&self) -> u64 {
        let tensors = self.layers.iter().flat_map(|layer| layer.tensors.iter().map(move |tensor| (tensor, layer.half)));
        tensors.map(|(tensor, half)| tensor.2.len() as u64 * if half && !is_running(&tensor.0) { 2 } else { 4 }).sum()
    }

    fn fill(&self, root: &Group) -> Result<(), Error> {
        let group = root.create("model_weights")?;
        put_versions(root, &group)?;
        root.put_text("model_config", &self.config)?;
        self.about.iter().try_for_each(|(name, text)| root.put_text(name, text))?;
        let names: Vec<String> = self.layers.iter().map(|layer| layer.name.clone()).collect();
        group.put_texts("layer_names", &names)?;
        for layer in &self.layers {
            let place = group.create(&layer.name)?;
            put_layer(&place, &layer.name, &layer.tensors, layer.half)?;
        }
        Ok(())
    }

    fn fill_weights(&self, root: &Group, places: &BTreeMap<String, String>) -> Result<(), Error> {
        // The group for variables of the model itself, which has none. Keras opens the group anyway.
        root.create("vars")?;
        let layers = root.create("layers")?;
        for layer in &self.layers {
            let text = || Error::Layer { layer: layer.name.clone(), text: "the archive has no group for it".into() };
            let vars = layers.create(places.get(&layer.name).ok_or_else(text)?)?.create("vars")?;
            for (index, tensor) in layer.tensors.iter().enumerate() {
                put_values(&vars, &index.to_string(), tensor, layer.half)?;
            }
        }
        Ok(())
    }
}

/// Writes the attributes that identify a Keras 2 file.
pub(super) fn put_versions(root: &Group, weights: &Group) -> Result<(), Error> {
    for place in [root, weights] {
        place.put_text("backend", "tensorflow")?;
        place.put_text("keras_version", KERAS_VERSION)?;
    }
    Ok(())
}

/// Writes the tensors of the layer `name` to its group: the list of their names, and arrays `name/kernel:0` and so on.
pub(super) fn put_layer(group: &Group, name: &str, tensors: &[Tensor], half: bool) -> Result<(), Error> {
    let names: Vec<String> = tensors.iter().map(|tensor| format!("{name}/{}:0", tensor.0)).collect();
    group.put_texts("weight_names", &names)?;
    let inner = group.create(name)?;
    tensors.iter().try_for_each(|tensor| put_values(&inner, &format!("{}:0", tensor.0), tensor, half))
}

/// Returns true if this is Keras's name of a running statistic.
fn is_running(field: &str) -> bool {
    Op::all_stored().any(|stored| stored.by_keras(field).is_some_and(|tensor| tensor.running))
}

fn put_values(group: &Group, name: &str, (field, shape, values): &Tensor, half: bool) -> Result<(), Error> {
    if half && !is_running(field) {
        group.put_half_array(name, shape, values)
    } else {
        group.put_array(name, shape, values)
    }
}

/// Information about a network that other programs need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// `model_config`: Keras's JSON of the network. `None` if Keras cannot express it.
    pub config: Option<String>,
    /// Names of the layers with weights in Keras's order. Layers that are not listed come last.
    pub order: Vec<String>,
    /// The epsilon of each batch norm, by layer name.
    pub epsilon: BTreeMap<String, f32>,
}

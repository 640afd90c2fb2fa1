//! The seal of a model file: a checksum of each part, which stays when another program rewrites the file, and then tells what it changed.
//!
//! Like the checksum behind the file it finds accidents and edits; it is no signature.

use std::collections::BTreeMap;

use loaders::record::masked_crc32c;

use super::error::Error;
use super::h5;
use super::model::{LayerWeights, ModelFile};
use super::reader::Group;

/// The group of `trireme` that holds it: an attribute for each part.
const NAME: &str = "seal";

impl ModelFile {
    /// Writes the checksum of each part.
    pub(super) fn put_seal(&self, ours: &h5::Group) -> Result<(), Error> {
        let group = ours.create(NAME)?;
        parts(self).iter().try_for_each(|(part, checksum)| group.put_number(part, *checksum))
    }

    /// The parts of an opened model that are not as they were sealed.
    pub(super) fn unsealed(&self, ours: &Group) -> Result<Vec<String>, Error> {
        if !ours.has(NAME) {
            return Ok(vec!["all of it, as it was written before parts were sealed".into()]);
        }
        let group = ours.open(NAME)?;
        let mut sealed = BTreeMap::new();
        for part in group.attribute_names() {
            sealed.insert(part.to_string(), group.number::<u32>(part)?);
        }
        let found = parts(self);
        let changed =
            found.iter().filter(|(part, checksum)| sealed.get(*part) != Some(checksum)).map(|(part, _)| part.clone());
        let gone = sealed.keys().filter(|part| !found.contains_key(*part)).map(|part| format!("{part} (gone)"));
        Ok(changed.chain(gone).collect())
    }
}

/// A checksum of each part by its name, for people.
fn parts(model: &ModelFile) -> BTreeMap<String, u32> {
    let ModelFile { network, input, image, classes, preprocess, mean, std, recipe, scores, epoch, step, layers, ema } =
        model;
    let texts = [
        ("network", format!("{network:?} {input:?} {image:?}")),
        ("classes", format!("{classes:?}")),
        ("preprocess", format!("{preprocess:?} {mean:?} {std:?}")),
        ("recipe", recipe.clone()),
        ("scores", format!("{scores:?} {epoch} {step}")),
    ];
    let texts = texts.into_iter().map(|(part, text)| (part.to_string(), masked_crc32c(text.as_bytes())));
    let weights = layers.iter().map(|layer| (format!("weights of {}", layer.name), of_layer(layer)));
    let averages = ema.iter().map(|layer| (format!("averages of {}", layer.name), of_layer(layer)));
    texts.chain(weights).chain(averages).collect()
}

fn of_layer(layer: &LayerWeights) -> u32 {
    let mut bytes = layer.kind.to_text().into_bytes();
    for (field, shape, values) in &layer.tensors {
        bytes.extend(format!(" {field} {shape:?} ").into_bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    masked_crc32c(&bytes)
}

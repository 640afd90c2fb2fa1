//! Everything of a model but the weights: group `trireme`, the same in model files and checkpoints.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Error;
use super::h5;
use super::model::ModelFile;
use super::reader::Group;
pub(super) use super::version::VERSION;
use super::version::{NEWEST, SEVERAL_LABELS};

impl ModelFile {
    /// Everything but the weights.
    pub(super) fn put_head(&self, ours: &h5::Group) -> Result<(), Error> {
        ours.put_number("version", if self.multi_label { SEVERAL_LABELS } else { VERSION })?;
        if self.multi_label {
            ours.put_number("multi_label", 1u32)?;
        }
        ours.put_text("network", &self.network)?;
        if !self.definition.is_empty() {
            ours.put_text("definition", &self.definition)?;
        }
        ours.put_numbers("input", &self.input.map(|n| n as u64))?;
        ours.put_numbers("image", &self.image.map(|n| n as u64))?;
        ours.put_texts("classes", &self.classes)?;
        ours.put_texts("preprocess", &self.preprocess)?;
        ours.put_numbers("mean", &self.mean)?;
        ours.put_numbers("std", &self.std)?;
        ours.put_text("recipe", &self.recipe)?;
        ours.put_number("epoch", self.epoch)?;
        ours.put_number("step", self.step)?;
        let scores = ours.create("scores")?;
        self.scores.iter().try_for_each(|(name, &score)| scores.put_number(name, score))
    }
}

/// Everything but the weights.
pub(super) fn read_head(path: &Path, ours: &Group) -> Result<ModelFile, Error> {
    let version: u64 = ours.number("version")?;
    if version > NEWEST {
        return Err(Error::Newer { path: path.to_path_buf(), version });
    }
    let content = |text| Error::Content { path: path.to_path_buf(), text };
    Ok(ModelFile {
        network: ours.text("network")?,
        definition: if ours.attribute_names().any(|name| name == "definition") {
            ours.text("definition")?
        } else {
            String::new()
        },
        input: three(&ours.numbers("input")?)
            .and_then(|input| if input.contains(&0) { Err(format!("of no size: {input:?}")) } else { Ok(input) })
            .map_err(|text| content(format!("input: {text}")))?,
        image: three(&ours.numbers("image")?).map_err(|text| content(format!("image: {text}")))?,
        classes: ours.texts("classes")?,
        multi_label: ours.attribute_names().any(|name| name == "multi_label"),
        preprocess: ours.texts("preprocess")?,
        mean: ours.numbers("mean")?,
        std: ours.numbers("std")?,
        recipe: ours.text("recipe")?,
        scores: read_scores(&ours.open("scores")?)?,
        epoch: ours.number("epoch")?,
        step: ours.number("step")?,
        layers: Vec::new(),
        ema: Vec::new(),
    })
}

fn read_scores(group: &Group) -> Result<BTreeMap<String, f64>, Error> {
    group.attribute_names().map(|name| group.number(name).map(|score| (name.to_string(), score))).collect()
}

/// Largest size of an image that a file may tell of.
const MOST: u64 = 1 << 16;

/// Channels, height and width.
pub(super) fn three(numbers: &[u64]) -> Result<[usize; 3], String> {
    let sizes: Option<Vec<usize>> = numbers.iter().map(|&n| usize::try_from(n).ok().filter(|_| n <= MOST)).collect();
    sizes
        .and_then(|sizes| sizes.try_into().ok())
        .ok_or_else(|| format!("channels, height and width are three numbers up to {MOST}, got {numbers:?}"))
}

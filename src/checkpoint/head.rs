//! Everything of a model but the weights: group `trireme`, the same in model files and checkpoints.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Error;
use super::h5::Group;
use super::model::ModelFile;
pub(super) use super::version::VERSION;

impl ModelFile {
    /// Everything but the weights.
    pub(super) fn put_head(&self, ours: &Group) -> Result<(), Error> {
        ours.put_number("version", VERSION)?;
        ours.put_text("network", &self.network)?;
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
    let version = ours.number("version")?;
    if version > VERSION {
        return Err(Error::Newer { path: path.to_path_buf(), version });
    }
    let content = |text| Error::Content { path: path.to_path_buf(), text };
    Ok(ModelFile {
        network: ours.text("network")?,
        input: three(&ours.numbers("input")?).map_err(|text| content(format!("input: {text}")))?,
        image: three(&ours.numbers("image")?).map_err(|text| content(format!("image: {text}")))?,
        classes: ours.texts("classes")?,
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
    let names = group.attribute_names()?;
    names.into_iter().map(|name| group.number(&name).map(|score| (name, score))).collect()
}

/// Channels, height and width.
pub(super) fn three(numbers: &[u64]) -> Result<[usize; 3], String> {
    let sizes: Option<Vec<usize>> = numbers.iter().map(|&n| usize::try_from(n).ok()).collect();
    sizes
        .and_then(|sizes| sizes.try_into().ok())
        .ok_or_else(|| format!("channels, height and width are three numbers, got {numbers:?}"))
}

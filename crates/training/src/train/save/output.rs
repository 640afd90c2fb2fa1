//! Writes the final model, and defines the content of model files and the names of checkpoints. Only rank 0 writes.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use backend::Backend;
use base::environment;
use base::text::printable;
use formats::checkpoint::{LabelScores, ModelFile, NumberScores, Progress, Sums};
use formats::interop::export::keras;
use loaders::safe_create::NewFile;
use loaders::{Images, regular, safe_create};

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::plan::network::sizes_of;
use crate::train::plan::run::Run;
use crate::train::save::model;

pub fn model_path(out: &Path) -> PathBuf {
    out.join("model.h5")
}

/// Writes the final model. Does nothing on ranks other than 0.
///
/// `at_end` has the scores on the split that is evaluated only at the end of the run.
pub fn model<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    at: &Progress,
    at_end: Option<&Sums>,
    path: &Path,
) -> Result<(), Error> {
    if !session.is_root() {
        return Ok(());
    }
    let layers = model::layers(&run.graph)?;
    let ema = run.ema.as_mut().map(|ema| ema.with(&mut run.graph, |graph| model::layers(graph))).transpose()?;
    let epoch = at.step.div_ceil(run.division.steps_per_epoch);
    let mut scores = scores(run, at);
    scores.extend(named(run.evaluation_at_end.as_ref().map(|evaluation| evaluation.split.name()), at_end));
    let ema = ema.unwrap_or_default();
    let file = ModelFile { layers, ema, scores, epoch, step: at.step, ..head(run)? };
    Ok(file.write_described(path, &keras::describe(run.graph.net(), run.source.manifest.label_kind())?)?)
}

/// Writes the model at the end of a run. If OUT cannot be written, writes the model to a new private folder in TMPDIR (/tmp if not set) or
/// in the current directory. The error then names this folder.
pub fn last_model<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    at: &Progress,
    at_end: Option<&Sums>,
    path: &Path,
) -> Result<(), Error> {
    let Err(error) = model(session, run, at, at_end, path) else { return Ok(()) };
    let temporary = environment::variable("TMPDIR").filter(|folder| !folder.is_empty()).unwrap_or("/tmp".into());
    for below in [PathBuf::from(temporary), PathBuf::from(".")] {
        let folder = below.join(format!("trireme-model-{}", safe_create::random_digits()));
        let elsewhere = model_path(&folder);
        let made = DirBuilder::new().mode(0o700).create(&folder);
        if made.is_ok() && model(session, run, at, at_end, &elsewhere).is_ok() {
            return Err(Error::Failed(format!("{error}. The model was written to {} instead", elsewhere.display())));
        }
        // remove the folder, which fails harmlessly if it is not empty
        let _ = std::fs::remove_dir(&folder);
    }
    Err(error)
}

/// Returns the last scores on the split that is evaluated after each epoch. The keys are SPLIT/SCORE.
pub fn scores<B: Backend>(run: &Run<B>, at: &Progress) -> BTreeMap<String, f64> {
    named(run.evaluation.as_ref().map(|evaluation| evaluation.split.name()), at.score.as_ref())
}

fn named(split: Option<&str>, score: Option<&Sums>) -> BTreeMap<String, f64> {
    let (Some(score), Some(split)) = (score, split) else { return BTreeMap::new() };
    by_name(score).map(|(name, value)| (format!("{split}/{name}"), value)).collect()
}

/// Returns all scores that an evaluation computed, with their names.
pub fn by_name(score: &Sums) -> impl Iterator<Item = (&'static str, f64)> {
    let scores = [("top1", score.top1), ("top5", score.top5), ("loss", score.loss)];
    let several = score.several.iter().flat_map(LabelScores::named);
    let numbers = score.numbers.iter().flat_map(NumberScores::named);
    // HDF5 can store NaN, but a score that was not computed is of no use
    scores.into_iter().chain(several).chain(numbers).filter(|(_, value)| !value.is_nan())
}

/// Returns a model file without weights, scores and steps. Its content does not depend on ranks, hosts or times.
pub fn head<B: Backend>(run: &Run<B>) -> Result<ModelFile, Error> {
    let mut recipe = run.recipe.clone();
    // remove settings that do not affect the trained weights
    recipe.loader = recipe::Loader { on_corrupt: recipe.loader.on_corrupt, ..Default::default() };
    (recipe.log, recipe.checkpoint) = Default::default();
    Ok(ModelFile {
        network: recipe.model.clone(),
        definition: run.source.definition(),
        input: sizes_of(Images::Fixed(run.source.preprocess.output())),
        image: sizes_of(run.source.preprocess.input()),
        classes: run.source.train.class_names().to_vec(),
        targets: run.source.manifest.targets.clone(),
        multi_label: run.source.manifest.multi_label,
        preprocess: run.source.preprocess.ops(),
        bands: run.source.manifest.bands.clone(),
        mean: run.source.manifest.mean.clone(),
        std: run.source.manifest.std.clone(),
        recipe: recipe.to_toml()?,
        ..ModelFile::default()
    })
}

// Checks that a data set has the same classes as the data that a model was trained on. They must have the same names in
// the same order, because a label is an index into this list.

/// The classes of a model, and the paths of model and data set for messages.
pub struct ClassSources<'a> {
    /// The model's class names, indexed by label.
    pub model: &'a [String],
    pub file: &'a Path,
    pub data: &'a Path,
}

impl ClassSources<'_> {
    /// Describes the first class in which model and data set differ. Returns `None` if all classes are equal.
    pub fn difference(&self, data: &[String]) -> Option<String> {
        let (file, folder) = (self.file.display(), self.data.display());
        let count = self.model.len().max(data.len());
        let index = (0..count).find(|&i| self.model.get(i) != data.get(i))?;
        let name = |names: &[String]| names.get(index).map_or("none".into(), |name| format!("\"{}\"", printable(name)));
        Some(format!(
            "class {index} is {} in {file} ({} classes) and {} in {folder} ({} classes)",
            name(self.model),
            self.model.len(),
            name(data),
            data.len()
        ))
    }
}

pub fn path_of(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:08}.h5"))
}

/// Lists the checkpoints in a directory with their steps, newest first.
pub fn list(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let step = |path: &Path| path.file_name()?.to_str()?.strip_prefix("step-")?.strip_suffix(".h5")?.parse().ok();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        found.extend(step(&path).map(|step| (step, path)));
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Copies a file of another run. The copy is complete or does not exist.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = regular::open(from)?;
    let mut new = NewFile::beside(to)?;
    io::copy(&mut source, new.file()?)?;
    new.publish().map(drop)
}

/// Returns the newest checkpoint in a directory, or `None` if there is no checkpoint or the directory cannot be read.
pub fn newest(folder: &Path) -> Option<PathBuf> {
    list(folder).ok()?.into_iter().next().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn the_first_difference_is_named() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let model = names(&["cat", "dog", "\u{1b}c"]);
        let sides = ClassSources { model: &model, file: Path::new("model.h5"), data: Path::new("data/pets") };
        let difference = |data: &[&str]| sides.difference(&names(data));
        assert_eq!(difference(&["cat", "dog", "\u{1b}c"]), None);
        let swapped = difference(&["dog", "cat", "\u{1b}c"]).unwrap();
        mentions(swapped, &["class 0 ", "\"cat\" in model.h5", "3 classes", "\"dog\" in data/pets"]);
        let fewer = difference(&["cat", "dog"]).unwrap();
        mentions(fewer, &["class 2 ", "\"\\u001bc\" in model.h5", "3 classes", "none in data/pets", "2 classes"]);
        let more = difference(&["cat", "dog", "\u{1b}c", "x"]).unwrap();
        mentions(more, &["class 3 ", "none in model.h5", "3 classes", "\"x\" in data/pets", "4 classes"]);
    }
}

//! A checkpoint: everything that a run needs to continue, in one HDF5 file that does not depend on the number of ranks.
//!
//! The group `trireme` is the same as in a model file, so that every checkpoint can be evaluated. Instead of Keras's
//! layout, arrays have PyTorch's names and layouts: `params/<name>`, `bn/<name>`, averages in `ema/params` and
//! `ema/bn`, the optimizer's slots in `optim/<slot>/<name>`, and error feedback in `residuals/<worker>/<name>`. Each of
//! these groups lists its arrays in the attribute `names`. The attributes of `progress` have the run's position.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base::run_state::{LossScale, PlateauState, bits};
use loaders::folder_of;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::keras::{LayerKind, Tensor};
use super::model::{LayerWeights, ModelFile, read_head};
use super::reader::{Group, group};
use super::{atomic, checksum, h5};

/// Version of the format. Increased when older programs can no longer read the files.
pub const VERSION: u64 = 2;

/// Version for checkpoints that older programs can read too: the best score, if there is one, is top-1, and no rule has
/// a state.
const COMPATIBLE_VERSION: u64 = 1;

/// Space in bytes that must stay free on the disk for the log.
const LOG_RESERVE: u64 = 1 << 20;

/// The state of a run between two steps.
#[derive(Debug, Clone, PartialEq)]
pub struct StateFile {
    /// The current network. Its `step` and `epoch` (number of epochs begun) match `progress`.
    pub model: ModelFile,
    /// The optimizer's slots by name, with one tensor per parameter.
    pub slots: Vec<(String, Vec<Tensor>)>,
    /// The error feedback residuals of each worker, with one tensor per parameter. Empty without error feedback.
    pub residuals: Vec<Vec<Tensor>>,
    pub progress: Progress,
}

/// The position of a run. All random draws depend only on the seed and these numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Number of the current epoch, from 0.
    pub epoch: u32,
    /// Steps done in this epoch. If all of its steps are done, the epoch has not been evaluated yet.
    pub step_of_epoch: u64,
    /// Optimizer steps done since the start of the run.
    pub step: u64,
    /// Images used for training since the start of the run.
    pub samples: u64,
    /// Loss and correct predictions, summed over the images of this epoch so far.
    pub epoch_sums: Sums,
    /// The result of the last evaluation, as means over the images of its split.
    pub score: Option<Sums>,
    /// The best score so far, with its step.
    pub best: Option<Best>,
    /// The state of rules that depend on scores.
    pub rules: RuleStates,
    /// The loss scale, if training uses f16.
    pub loss_scale: Option<LossScale>,
    /// The device's choices of algorithms in its own format. Empty if the device makes no choices.
    pub algorithms: String,
    /// Numbers of images and classes and a checksum of the data set's description, as text. A run resumes only if its
    /// data set gives the same text.
    pub data: String,
    /// Checksum of the teacher's weights. Empty without a teacher and in older files.
    pub teacher: String,
    /// The recipe's `seed`.
    pub seed: u64,
}

/// Loss and numbers of correct predictions, as sums or means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    #[serde(with = "bits")]
    pub loss: f64,
    /// Number of images whose most probable class is correct, or their share if these are means.
    #[serde(with = "bits")]
    pub top1: f64,
    /// Number or share of images with the true class among the five most probable.
    #[serde(with = "bits")]
    pub top5: f64,
    pub count: u64,
    /// Further scores of a multi-label split.
    #[serde(default)]
    pub several: Option<LabelScores>,
    /// Scores if labels are numbers.
    #[serde(default)]
    pub numbers: Option<NumberScores>,
}

/// Scores if labels are numbers: means over the targets, in the targets' units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NumberScores {
    /// Root mean squared error.
    #[serde(with = "bits")]
    pub rmse: f64,
    /// Mean absolute error.
    #[serde(with = "bits")]
    pub mae: f64,
    /// Coefficient of determination: 1 minus the sum of the squared errors divided by the sum of the labels' squared
    /// differences from their mean. NaN if a target has the same number in all images.
    #[serde(with = "bits")]
    pub r2: f64,
}

impl NumberScores {
    /// Returns the scores with their names.
    pub fn named(&self) -> [(&'static str, f64); 3] {
        [("rmse", self.rmse), ("mae", self.mae), ("r2", self.r2)]
    }
}

/// Scores of a multi-label split over all classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelScores {
    /// Mean of the classes' average precisions. NaN if it was not computed.
    #[serde(with = "bits")]
    pub map: f64,
    /// F1 score over all pairs of image and class. A class is predicted if its probability is above 0.5.
    #[serde(with = "bits")]
    pub micro_f1: f64,
    /// Mean F1 score of the classes, with the same threshold.
    #[serde(with = "bits")]
    pub macro_f1: f64,
}

impl LabelScores {
    /// Returns the scores with their names.
    pub fn named(&self) -> [(&'static str, f64); 3] {
        [("map", self.map), ("micro_f1", self.micro_f1), ("macro_f1", self.macro_f1)]
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Name of the score, as in `checkpoint.best_by`.
    pub by: String,
    #[serde(with = "bits")]
    pub score: f64,
    /// Optimizer steps done when the score was reached.
    pub step: u64,
}

impl StateFile {
    /// Writes the file atomically and returns its size in bytes. Checks the free space first.
    pub fn write(&self, path: &Path) -> Result<u64, Error> {
        let layers = self.model.layers.iter().chain(&self.model.ema).flat_map(|layer| &layer.tensors);
        let others = self.slots.iter().map(|slot| &slot.1).chain(&self.residuals).flatten();
        let bytes = layers.chain(others).map(|t| 4 * t.2.len() as u64).sum();
        // If this file filled the disk, the run would end when it writes the next line of the log.
        if atomic::free_space(folder_of(path)).is_some_and(|free| free < bytes + LOG_RESERVE) {
            return Err(Error::NoSpace { path: path.to_path_buf(), bytes });
        }
        atomic::replace(path, bytes, |new| {
            h5::write(new, |root| self.fill(root))?;
            checksum::append(&new.name())
        })?;
        let size = std::fs::metadata(path).map(|m| m.len());
        size.map_err(|source| Error::Io { action: "read", path: path.to_path_buf(), source })
    }

    /// Reads a file written by [`StateFile::write`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing, truncated or changed, or if it has another kind or a later version.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let root = open(path)?;
        if !is_checkpoint(&root) {
            let text = match root.has("model_weights") {
                true => format!(
                    "it is a model, which has no optimizer state and no position in a run. To continue its run, use --resume auto or a \
                       file in {}. To start a new run from its weights, set `from` under [init] in the recipe",
                    path.with_file_name("checkpoints").display()
                ),
                false => "it lacks the groups trireme, params and progress, which `trireme train` writes".into(),
            };
            return Err(Error::NotACheckpoint { path: path.to_path_buf(), text });
        }
        let progress = open_progress(path, &root)?;
        let mut slots = Vec::new();
        let optim = root.open("optim")?;
        for name in optim.texts("names")? {
            slots.push((name.clone(), read_tensors(&optim.open(&name)?)?));
        }
        let mut residuals = Vec::new();
        if root.has("residuals") {
            let group = root.open("residuals")?;
            let workers: u64 = group.number("workers")?;
            for worker in 0..workers {
                // If this number is larger than the number of groups, the first missing group is an error.
                residuals.push(read_tensors(&group.open(&worker.to_string())?)?);
            }
        }
        let progress = read_progress(&progress)?;
        Ok(Self { model: read_model(path, &root)?, slots, residuals, progress })
    }

    /// Reads only the run's position.
    ///
    /// # Errors
    ///
    /// Returns errors like [`StateFile::read`].
    pub fn read_progress(path: &Path) -> Result<Progress, Error> {
        read_progress(&open_progress(path, &open(path)?)?)
    }

    fn fill(&self, root: &h5::Group) -> Result<(), Error> {
        self.model.put_head(&root.create("trireme")?)?;
        write_layers(root, &self.model.layers)?;
        if !self.model.ema.is_empty() {
            write_layers(&root.create("ema")?, &self.model.ema)?;
        }
        let optim = root.create("optim")?;
        optim.put_texts("names", &self.slots.iter().map(|slot| slot.0.clone()).collect::<Vec<_>>())?;
        for (name, tensors) in &self.slots {
            write_tensors(&optim.create(name)?, tensors)?;
        }
        if !self.residuals.is_empty() {
            let group = root.create("residuals")?;
            group.put_number("workers", self.residuals.len() as u64)?;
            for (worker, tensors) in self.residuals.iter().enumerate() {
                write_tensors(&group.create(&worker.to_string())?, tensors)?;
            }
        }
        write_progress(&root.create("progress")?, &self.progress)
    }
}

/// Opens a file, which must have a valid checksum, and returns its root group.
fn open(path: &Path) -> Result<Group, Error> {
    let checked = checksum::open(path)?;
    checksum::require_checksum(checked.sealed, path)?;
    group::open(checked, path)
}

/// Opens the group with the run's position, and checks the version.
fn open_progress(path: &Path, root: &Group) -> Result<Group, Error> {
    let progress = root.open("progress")?;
    let version: u64 = progress.number("version")?;
    if version > VERSION {
        return Err(Error::Newer { path: path.to_path_buf(), kind: "checkpoint", version, newest: VERSION });
    }
    Ok(progress)
}

/// Returns true if an open file is a checkpoint.
pub(super) fn is_checkpoint(root: &Group) -> bool {
    ["trireme", "params", "progress"].iter().all(|name| root.has(name))
}

/// Reads the model in a checkpoint.
pub(super) fn read_model(path: &Path, root: &Group) -> Result<ModelFile, Error> {
    let layers = read_layers(path, root)?;
    let ema = if root.has("ema") { read_layers(path, &root.open("ema")?)? } else { Vec::new() };
    Ok(ModelFile { layers, ema, ..read_head(path, &root.open("trireme")?)? })
}

/// Returns true if a tensor of a layer is a running statistic.
fn is_running(layer: &LayerWeights, field: &str) -> bool {
    layer.kind.stored.by_torch(field).is_some_and(|(_, tensor)| tensor.running)
}

/// Writes the groups `params` and `bn` to `place`.
fn write_layers(place: &h5::Group, layers: &[LayerWeights]) -> Result<(), Error> {
    let named = |running: bool| {
        let tensors = layers.iter().flat_map(|layer| layer.tensors.iter().map(move |t| (layer, t)));
        let wanted = tensors.filter(move |(layer, t)| is_running(layer, &t.0) == running);
        wanted.map(|(layer, (field, shape, values))| (format!("{}.{field}", layer.name), shape, values))
    };
    let params = place.create("params")?;
    params.put_texts("layers", &layers.iter().map(|layer| layer.name.clone()).collect::<Vec<_>>())?;
    params.put_texts("kinds", &layers.iter().map(|layer| layer.kind.to_text()).collect::<Vec<_>>())?;
    for (group, running) in [(params, false), (place.create("bn")?, true)] {
        group.put_texts("names", &named(running).map(|t| t.0).collect::<Vec<_>>())?;
        named(running).try_for_each(|(name, shape, values)| group.put_array(&name, shape, values))?;
    }
    Ok(())
}

fn read_layers(path: &Path, place: &Group) -> Result<Vec<LayerWeights>, Error> {
    let content = |text| Error::Content { path: path.to_path_buf(), text };
    let params = place.open("params")?;
    let mut layers = Vec::new();
    let (names, kinds) = (params.texts("layers")?, params.texts("kinds")?);
    if names.len() != kinds.len() {
        return Err(content(format!("params lists {} layers, but {} layer kinds", names.len(), kinds.len())));
    }
    // A tensor's name begins with its layer's name and a dot. If this is true for more than one layer, the longest name
    // counts.
    let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut tensors: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
    for (name, shape, values) in read_tensors(&params)?.into_iter().chain(read_tensors(&place.open("bn")?)?) {
        let mut pairs = name.rmatch_indices('.').map(|(at, _)| (&name[..at], &name[at + 1..]));
        if let Some((layer, field)) = pairs.find(|(layer, _)| known.contains(layer)) {
            tensors.entry(layer.into()).or_default().push((field.into(), shape, values));
        }
    }
    for (name, kind) in names.into_iter().zip(kinds) {
        let Some(kind) = LayerKind::parse(&kind) else {
            return Err(Error::UnknownKind { path: path.to_path_buf(), layer: name, kind });
        };
        let tensors = tensors.remove(&name).unwrap_or_default();
        layers.push(LayerWeights { name, kind, tensors });
    }
    Ok(layers)
}

fn write_tensors(group: &h5::Group, tensors: &[Tensor]) -> Result<(), Error> {
    group.put_texts("names", &tensors.iter().map(|t| t.0.clone()).collect::<Vec<_>>())?;
    tensors.iter().try_for_each(|(name, shape, values)| group.put_array(name, shape, values))
}

fn read_tensors(group: &Group) -> Result<Vec<Tensor>, Error> {
    let names = group.texts("names")?;
    names.into_iter().map(|name| group.array(&name).map(|(shape, values)| (name, shape, values))).collect()
}

fn write_progress(group: &h5::Group, p: &Progress) -> Result<(), Error> {
    let plain = p.best.as_ref().is_none_or(|best| best.by == "top1") && p.rules == RuleStates::default();
    group.put_number("version", if plain { COMPATIBLE_VERSION } else { VERSION })?;
    group.put_number("epoch", p.epoch)?;
    for (name, number) in
        [("step_of_epoch", p.step_of_epoch), ("step", p.step), ("samples", p.samples), ("seed", p.seed)]
    {
        group.put_number(name, number)?;
    }
    group.put_text("data", &p.data)?;
    write_sums(group, "epoch_sums", &p.epoch_sums)?;
    if let Some(score) = &p.score {
        write_sums(group, "score", score)?;
    }
    if let Some(LossScale { scale, good, bad: _, lost }) = p.loss_scale {
        group.put_number("loss_scale", scale)?;
        group.put_number("loss_scale_steps", good as f32)?;
        group.put_number("lost_steps", lost)?;
    }
    if !p.algorithms.is_empty() {
        group.put_text("algorithms", &p.algorithms)?;
    }
    if !p.teacher.is_empty() {
        group.put_text("teacher", &p.teacher)?;
    }
    if let Some(best) = &p.best {
        group.put_number(&format!("{BEST_PREFIX}{}", best.by), best.score)?;
        group.put_number("best_step", best.step)?;
    }
    p.rules.write(group)
}

fn read_progress(group: &Group) -> Result<Progress, Error> {
    let loss_scale = |group: &Group, name: &str| {
        let good = group.number::<f32>("loss_scale_steps")? as u32;
        // Older files do not have this attribute.
        let lost = group.optional("lost_steps", Group::number)?.unwrap_or(0);
        Ok(LossScale { scale: group.number(name)?, good, bad: 0, lost })
    };
    Ok(Progress {
        epoch: group.number("epoch")?,
        step_of_epoch: group.number("step_of_epoch")?,
        step: group.number("step")?,
        samples: group.number("samples")?,
        epoch_sums: read_sums(group, "epoch_sums")?,
        score: group.optional("score_count", |group, _| read_sums(group, "score"))?,
        best: group.optional("best_step", read_best)?.flatten(),
        rules: RuleStates::read(group)?,
        loss_scale: group.optional("loss_scale", loss_scale)?,
        algorithms: group.optional("algorithms", Group::text)?.unwrap_or_default(),
        data: group.text("data")?,
        teacher: group.optional("teacher", Group::text)?.unwrap_or_default(),
        seed: group.number("seed")?,
    })
}

/// Prefix of the attribute with the best score. The name of the score follows.
const BEST_PREFIX: &str = "best_";

fn read_best(group: &Group, step: &str) -> Result<Option<Best>, Error> {
    let step = group.number(step)?;
    let mut names =
        group.attribute_names().filter_map(|name| name.strip_prefix(BEST_PREFIX)).filter(|name| *name != "step");
    names
        .next()
        .map(|by| Ok::<_, Error>(Best { by: by.into(), score: group.number(&format!("{BEST_PREFIX}{by}"))?, step }))
        .transpose()
}

fn write_sums(group: &h5::Group, name: &str, sums: &Sums) -> Result<(), Error> {
    for (field, value) in [("loss", sums.loss), ("top1", sums.top1), ("top5", sums.top5)] {
        group.put_number(&format!("{name}_{field}"), value)?;
    }
    let several = sums.several.iter().flat_map(LabelScores::named);
    for (field, value) in several.chain(sums.numbers.iter().flat_map(NumberScores::named)) {
        group.put_number(&format!("{name}_{field}"), value)?;
    }
    group.put_number(&format!("{name}_count"), sums.count)
}

fn read_sums(group: &Group, name: &str) -> Result<Sums, Error> {
    let number = |field: &str| group.number(&format!("{name}_{field}"));
    let count = group.number(&format!("{name}_count"))?;
    let several = |group: &Group, map: &str| {
        Ok(LabelScores { map: group.number(map)?, micro_f1: number("micro_f1")?, macro_f1: number("macro_f1")? })
    };
    let numbers = |group: &Group, rmse: &str| {
        Ok(NumberScores { rmse: group.number(rmse)?, mae: number("mae")?, r2: number("r2")? })
    };
    let several = group.optional(&format!("{name}_map"), several)?;
    let numbers = group.optional(&format!("{name}_rmse"), numbers)?;
    Ok(Sums { loss: number("loss")?, top1: number("top1")?, top5: number("top5")?, count, several, numbers })
}

// The state that score-dependent rules keep. It is stored in checkpoints, so that a resumed run behaves like an
// uninterrupted one.

/// The state of all rules that depend on scores. A rule that is not used has no state, and nothing is written for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleStates {
    /// `None` if the run has neither `stop.patience` nor `stop.target`.
    pub stop: Option<StopState>,
    /// The state of the plateau schedule. `None` for other schedules.
    pub plateau: Option<PlateauState>,
    /// Seconds from the first image to this checkpoint. `None` if `[stop]` has no target.
    #[serde(with = "bits::optional")]
    pub seconds: Option<f64>,
}

/// The state of `[stop]`: what it has seen of the score that it watches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StopState {
    #[serde(with = "bits")]
    pub best: f64,
    #[serde(with = "bits")]
    pub last: f64,
    /// Evaluations since the best score.
    pub since: u32,
}

impl RuleStates {
    /// Writes attributes for the rules that are used.
    pub(super) fn write(&self, group: &h5::Group) -> Result<(), Error> {
        if let Some(StopState { best, last, since }) = self.stop {
            group.put_number("stop_best", best)?;
            group.put_number("stop_last", last)?;
            group.put_number("stop_since", since)?;
        }
        if let Some(PlateauState { best, since, drops, cooldown }) = self.plateau {
            group.put_number("plateau_best", best)?;
            for (name, count) in [("since", since), ("drops", drops), ("cooldown", cooldown)] {
                group.put_number(&format!("plateau_{name}"), count)?;
            }
        }
        self.seconds.map_or(Ok(()), |seconds| group.put_number("seconds", seconds))
    }

    /// Reads the attributes that [`RuleStates::write`] wrote.
    pub(super) fn read(group: &Group) -> Result<Self, Error> {
        let stop = |group: &Group, best: &str| {
            let (best, last) = (group.number(best)?, group.number("stop_last")?);
            Ok(StopState { best, last, since: group.number("stop_since")? })
        };
        let plateau = |group: &Group, best: &str| {
            let count = |name: &str| group.number(&format!("plateau_{name}"));
            let (since, drops, cooldown) = (count("since")?, count("drops")?, count("cooldown")?);
            Ok(PlateauState { best: group.number(best)?, since, drops, cooldown })
        };
        Ok(Self {
            stop: group.optional("stop_best", stop)?,
            plateau: group.optional("plateau_best", plateau)?,
            seconds: group.optional("seconds", Group::number)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Temporary;

    #[test]
    fn a_later_format_asks_for_a_newer_trireme() {
        let Temporary(path) = &Temporary::new("newer.h5");
        let file = h5::H5File::create(path).unwrap();
        file.root().unwrap().create("progress").unwrap().put_number("version", VERSION + 1).unwrap();
        file.close().unwrap();
        checksum::append(path).unwrap();
        let error = StateFile::read_progress(path).unwrap_err().to_string();
        let parts = [format!("checkpoint format {}", VERSION + 1), format!("up to {VERSION}:")];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

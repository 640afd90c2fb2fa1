//! The recipe, the data set that it names, and the pipelines from a record to an input: the same on every rank.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use loaders::transform::exif_of;
use loaders::{Dataset, Manifest, Pipeline, Shuffle, Split};
use net::NetSpec;
use net::Shape;
use net::models;
use recipe::{ClassWeights, Known, Loaded, Recipe, ScoredSplits};

use super::census::Census;
use super::lists;
use super::network::{Defined, fitting, shape_of};
use super::patterns;
use super::phases::Phases;
use super::request::TrainRequest;
use super::several;
use crate::error::Error;

/// The recipe and the data that it names; the same on every rank.
pub struct Source {
    /// As read; `workers` may still be open.
    pub recipe: Recipe,
    /// What the changes of the command line entailed, a line each.
    pub notes: Vec<String>,
    /// The file of the network, if it is not one of the catalogue.
    pub file: Option<PathBuf>,
    /// What that file describes, once it is read: [`Source::define`].
    pub defined: Option<Defined>,
    /// The data set's description.
    pub manifest: Manifest,
    /// Training images.
    pub train: Arc<Split>,
    /// Its classes, once they were counted: [`Source::count`].
    pub census: Option<Census>,
    /// Scored after each epoch, if the data set has such a split.
    pub eval: Option<Arc<Split>>,
    /// Another split, which is scored at the end of the run.
    pub eval_at_end: Option<Arc<Split>>,
    /// From a record to an input, for training, in the size that the network is built for.
    pub augment: Pipeline,
    /// Where training images have other sizes.
    pub phases: Phases,
    /// The same for scoring.
    pub preprocess: Pipeline,
}

/// Bare names of all transforms.
pub fn transform_names() -> Vec<&'static str> {
    loaders::transform::names()
}

impl Source {
    /// Reads the recipe.
    ///
    /// # Errors
    /// For names of folders that the files of a run cannot hold, too.
    pub fn recipe(request: &TrainRequest) -> Result<Loaded, Error> {
        request.check_names()?;
        let (models, transforms) = (models::names(), transform_names());
        let known = Known { models: &models, transforms: &transforms };
        Ok(Recipe::load(&request.recipe, &request.changes, &known)?)
    }

    /// Opens the recipe's data set in `dir`, which may be a copy of it.
    pub fn open(loaded: Loaded, dir: &Path) -> Result<Self, Error> {
        let Loaded { recipe, notes, network: file, data_beside } = loaded;
        lists::data_is_there(dir, data_beside.as_deref())?;
        let dataset = Dataset::open(dir)?;
        let train = Arc::new(match recipe.mixing() {
            Shuffle::Full => dataset.split("train")?,
            Shuffle::Window(_) => dataset.split_lazily("train")?,
        });
        if train.is_empty() {
            return Err(Error::DataSet { data: recipe.data, what: "its train split has no images".into() });
        }
        several::check(&recipe, &dataset.manifest)?;
        class_weights_fit(&recipe, &train)?;
        let [eval, eval_at_end] = scored_splits(&recipe, &dataset)?;
        several::check_scores(&recipe, eval.as_deref())?;
        let pipeline = |list: &str, ops: &[String]| {
            let images = train.images_as(exif_of(ops))?;
            Pipeline::new(ops, images, &dataset.manifest, recipe.seed)
                .map_err(|e| unfit(&e, &format!("augment.{list}, images of {images}: {e}"), &train))
        };
        let list = recipe.augment.train_list();
        let augment = pipeline("train", &list)?;
        let mixed = |augment: Pipeline| match recipe.mix.settings() {
            Some(mix) => augment.mixed(mix),
            None => augment,
        };
        let augment = mixed(augment);
        let sizes = recipe.augment.sizes.as_deref().unwrap_or_default();
        let phases = Phases::new(sizes, &list, &augment, |list| Ok(mixed(pipeline("train", list)?)))?;
        let preprocess = pipeline("eval", &recipe.augment.eval_list())?;
        let (scored, images) = ([&eval, &eval_at_end], train.images_as(preprocess.exif())?);
        scored.into_iter().flatten().try_for_each(|split| lists::one_size(&recipe.data, split, &preprocess, images))?;
        let told = [lists::sizes_fit(&augment, &preprocess)?, lists::values_agree(&augment, &preprocess)?];
        let notes = notes.into_iter().chain(told.into_iter().flatten()).collect();
        let manifest = dataset.manifest;
        let (defined, census) = (None, None);
        Ok(Self {
            recipe,
            notes,
            file,
            defined,
            manifest,
            train,
            census,
            eval,
            eval_at_end,
            augment,
            phases,
            preprocess,
        })
    }

    /// From a record to an input, for training in this epoch.
    pub fn augment(&self, epoch: u32) -> &Pipeline {
        self.phases.augment(epoch).unwrap_or(&self.augment)
    }

    /// Reads the network's file, if there is one. A run that goes on has its network from its checkpoint already, and the file may be gone;
    /// where it says something else by now, a note tells.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn define(&mut self) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        let read = || Defined::read(file, &self.recipe.model, self.preprocess.output(), self.train.classes());
        match &mut self.defined {
            None => self.defined = Some(read()?),
            Some(defined) => {
                if read().is_ok_and(|now| now.text != defined.text) {
                    let file = file.display();
                    let note = format!(
                        "warning: {file} has changed since the run began; it goes on with the network of its checkpoint"
                    );
                    defined.notes.push(note);
                }
            }
        }
        Ok(())
    }

    /// Counts the classes of the training images, where the recipe needs to know.
    ///
    /// # Errors
    /// For a record without a label, unless such records are left out.
    pub fn count(&mut self) -> Result<(), Error> {
        if Census::needed(&self.recipe) && self.census.is_none() {
            self.census = Some(Census::read(&self.train, &self.recipe)?);
        }
        Ok(())
    }

    /// How much each class counts in the loss; none where all count alike. [`Source::count`] comes before.
    pub fn class_weights(&self) -> Option<Vec<f64>> {
        match self.recipe.loss.class_weights.as_ref()? {
            ClassWeights::Given(weights) => Some(weights.clone()),
            rule => Some(self.census.as_ref()?.weights(rule)),
        }
    }

    /// Takes the network from a checkpoint, or from rank 0.
    ///
    /// # Errors
    /// For a text that describes none.
    pub fn adopt(&mut self, text: &str) -> Result<(), Error> {
        let (name, image) = (&self.recipe.model, self.preprocess.output());
        self.defined = Some(Defined::of_checkpoint(text, name, image, self.train.classes())?);
        Ok(())
    }

    /// The network's description with every number, for files of the run; empty for one of the catalogue.
    pub fn definition(&self) -> String {
        self.defined.as_ref().map_or_else(String::new, |defined| defined.text.clone())
    }

    /// Builds the network for the size of the scored images and for these classes.
    pub fn network(&self) -> Result<NetSpec, Error> {
        let mut net = match &self.defined {
            Some(defined) => defined.net.clone(),
            None => fitting(&self.recipe.model, self.preprocess.output(), self.train.classes())?,
        };
        if self.recipe.zero_init_residual {
            net.zero_init_residual();
        }
        if let Some(patterns) = &self.recipe.freeze.patterns {
            net.frozen = patterns::frozen(&net, patterns)?;
        }
        Ok(net)
    }

    /// Returns the larger shape of training and evaluation images.
    pub fn largest_input(&self) -> Shape {
        let [train, eval] = [&self.augment, &self.preprocess].map(|pipeline| shape_of(pipeline.output()));
        if train.plane() > eval.plane() { train } else { eval }
    }

    /// What tells this data set from others, wherever it lies.
    pub fn identity(&self) -> Result<String, Error> {
        let checksum = loaders::record::masked_crc32c(digest(&self.manifest)?.as_bytes());
        let (images, classes) = (self.train.len(), self.train.classes());
        Ok(format!("{images} images in {classes} classes, checksum {checksum:08x}"))
    }

    /// Returns text that must be equal on all ranks: the recipe and the description of the data set.
    pub fn digest(&self) -> Result<String, Error> {
        Ok(format!("{}\n{}", self.recipe.to_toml()?, digest(&self.manifest)?))
    }
}

/// Opens the split that the run watches, and the split that is scored at the end. Empty splits are omitted.
fn scored_splits(recipe: &Recipe, dataset: &Dataset) -> Result<[Option<Arc<Split>>; 2], Error> {
    let splits: Vec<&str> = dataset.manifest.splits.keys().map(String::as_str).collect();
    let ScoredSplits { watched, at_end } = ScoredSplits::of_run(recipe.eval_split.as_deref(), &splits)?;
    let open = |name: Option<String>| {
        let split = name.map(|name| dataset.split(&name)).transpose()?;
        Ok::<_, Error>(split.filter(|split| !split.is_empty()).map(Arc::new))
    };
    Ok([open(watched)?, open(at_end)?])
}

/// Refuses a list of weights that is not one a class.
fn class_weights_fit(recipe: &Recipe, train: &Split) -> Result<(), Error> {
    let Some(ClassWeights::Given(weights)) = &recipe.loss.class_weights else { return Ok(()) };
    let (given, classes) = (weights.len(), train.classes());
    if given == classes {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "loss.class_weights: {given} weights for {classes} classes; give one for each class of {}, in the order of its dataset.json, or \
         \"auto\"",
        recipe.data
    )))
}

/// A list of transforms that does not fit the images: where it is only that these vary, one that does is named.
fn unfit(error: &loaders::Error, problem: &str, split: &Split) -> Error {
    let odd = error.is_of_sizes().then(|| split.one_size().err()).flatten();
    Error::Usage(odd.map_or_else(|| problem.to_owned(), |odd| format!("{problem}; {odd}")))
}

/// A data set's description as text, one value a line.
pub fn digest(manifest: &Manifest) -> Result<String, Error> {
    serde_json::to_string_pretty(manifest).map_err(|e| Error::Failed(format!("dataset.json: {e}")))
}

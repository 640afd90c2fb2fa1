//! The input of a run: recipe, data set, and the pipelines from a record to the network's input. Equal on every rank.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::text::plural;
use loaders::transform::{exif_of, selected_bands};
use loaders::{Bands, Dataset, Dtype, ImageSpec, Images, Manifest, Pipeline, Shuffle, Split};
use net::{NetSpec, Shape};
use recipe::{ClassWeights, Loaded, Recipe, ScoredSplits};

use super::network::{FileNetwork, build_checked, shape_of};
use super::phases::Phases;
use super::request::TrainRequest;
use super::split_labels::SplitLabels;
use super::{network, settings};
use crate::error::Error;

/// The recipe and its data. Equal on every rank.
pub struct Source {
    /// The recipe as read, in which `workers` may be unset. [`Run::recipe`](super::run::Run::recipe) has all defaults filled in.
    pub recipe: Recipe,
    /// Consequences of command line changes, one per line.
    pub notes: Vec<String>,
    /// Path of the network's file. `None` if the network is from the catalogue.
    pub file: Option<PathBuf>,
    /// The network from this file, from rank 0 or from the checkpoint. Set by [`Source::define`] or [`Source::adopt`].
    pub file_network: Option<FileNetwork>,
    pub manifest: Manifest,
    pub train: Arc<Split>,
    /// Labels of the training split. Set by [`Source::read_labels`].
    pub train_labels: Option<SplitLabels>,
    /// The split to score after each epoch, if there is one.
    pub eval: Option<Arc<Split>>,
    /// Another split, to score at the end of the run, if there is one.
    pub eval_at_end: Option<Arc<Split>>,
    /// Transforms for training, at the image size that the network is built for.
    pub augment: Pipeline,
    /// Phases with other sizes of training images.
    pub phases: Phases,
    /// Transforms for evaluation and prediction.
    pub preprocess: Pipeline,
}

impl Source {
    /// Reads the recipe. Returns an error if the recipe is invalid, the data set that it names is missing, or a path is not valid UTF-8.
    pub fn recipe(request: &TrainRequest) -> Result<Loaded, Error> {
        request.check_names()?;
        let loaded = Recipe::load(&request.recipe, &request.changes)?;
        check_data_exists(Path::new(&loaded.recipe.data), loaded.data_beside.as_deref())?;
        Ok(loaded)
    }

    /// Opens the recipe's data set in `dir`, which may be a copy.
    pub fn open(loaded: Loaded, dir: &Path) -> Result<Self, Error> {
        let Loaded { recipe, notes, network: file, .. } = loaded;
        let dataset = Dataset::open(dir)?;
        let train = Arc::new(match recipe.shuffling() {
            Shuffle::Full => dataset.split("train")?,
            Shuffle::Window(_) => dataset.split_lazily("train")?,
        });
        if train.is_empty() {
            return Err(Error::Failed(format!("data set {}: the split train has no images", recipe.data)));
        }
        settings::check(&recipe, &dataset.manifest)?;
        check_class_weights(&recipe, &train)?;
        let [eval, eval_at_end] = scored_splits(&recipe, &dataset)?;
        settings::check_scores(&recipe, dataset.manifest.label_kind(), eval.as_deref())?;
        let pipeline = |list: &str, ops: &[String]| {
            let images = train.images_as(exif_of(ops))?;
            Pipeline::new(ops, images, &dataset.manifest, recipe.seed)
                .map_err(|e| unfit(&e, &format!("augment.{list} for images of {images}: {e}"), &train))
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
        scored.into_iter().flatten().try_for_each(|split| check_one_size(&recipe.data, split, &preprocess, images))?;
        let differences = [
            check_output_sizes(&augment, &preprocess)?,
            check_pixel_values(&augment, &preprocess, &dataset.manifest.bands)?,
        ];
        let notes = notes.into_iter().chain(differences.into_iter().flatten()).collect();
        let manifest = dataset.manifest;
        let (file_network, train_labels) = (None, None);
        Ok(Self {
            recipe,
            notes,
            file,
            file_network,
            manifest,
            train,
            train_labels,
            eval,
            eval_at_end,
            augment,
            phases,
            preprocess,
        })
    }

    /// Returns the transforms for training in this epoch.
    pub fn augment(&self, epoch: u32) -> &Pipeline {
        self.phases.augment(epoch).unwrap_or(&self.augment)
    }

    /// Reads the network's file, if there is one. A resumed run takes the network from its checkpoint instead, so the
    /// file may be missing. If the file has changed since then, adds a note for the user. Otherwise keeps its content for
    /// the output directory. Returns an error if the file is invalid.
    pub fn define(&mut self) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        let read = || FileNetwork::read(file, &self.recipe.model, self.preprocess.output(), self.train.classes());
        match &mut self.file_network {
            None => self.file_network = Some(read()?),
            Some(file_network) => match read() {
                Ok(now) if now.text == file_network.text => file_network.copy = now.copy,
                Ok(_) => {
                    let file = file.display();
                    let note = format!(
                        "warning: {file} has changed since the run began, or this version reads it in another way; the run ignores \
                         this, because a resumed run takes the network from its checkpoint"
                    );
                    file_network.notes.push(note);
                }
                Err(_) => {}
            },
        }
        Ok(())
    }

    /// Reads the labels of the training images, if the recipe needs them. Returns an error if a record has no label,
    /// unless such records are skipped.
    pub fn read_labels(&mut self) -> Result<(), Error> {
        if SplitLabels::are_needed(&self.recipe) && self.train_labels.is_none() {
            self.train_labels = Some(SplitLabels::read(&self.train, &self.recipe)?);
        }
        Ok(())
    }

    /// Returns the weight of each class in the loss, or `None` if all are equal. Call [`Source::read_labels`] first.
    pub fn class_weights(&self) -> Option<Vec<f64>> {
        match self.recipe.loss.class_weights.as_ref()? {
            ClassWeights::Given(weights) => Some(weights.clone()),
            rule => Some(self.train_labels.as_ref()?.weights(rule)),
        }
    }

    /// Builds the network from the description in a checkpoint or from rank 0. Returns an error if the description is
    /// invalid.
    pub fn adopt(&mut self, text: &str) -> Result<(), Error> {
        let (name, image) = (&self.recipe.model, self.preprocess.output());
        self.file_network = Some(FileNetwork::from_checkpoint(text, name, image, self.train.classes())?);
        Ok(())
    }

    /// Returns the network's complete description for files. Empty if the network is from the catalogue.
    pub fn definition(&self) -> String {
        self.file_network.as_ref().map_or_else(String::new, |file_network| file_network.text.clone())
    }

    /// Builds the network for the size of evaluation images.
    pub fn network(&self) -> Result<NetSpec, Error> {
        let mut net = match &self.file_network {
            Some(file_network) => file_network.net.clone(),
            None => build_checked(&self.recipe.model, self.preprocess.output(), self.train.classes())?,
        };
        if self.recipe.zero_init_residual {
            net.zero_init_residual();
        }
        if let Some(patterns) = &self.recipe.freeze.patterns {
            net.frozen = network::frozen(&net, patterns)?;
        }
        Ok(net)
    }

    /// Returns the shape of training images or evaluation images, whichever has more pixels.
    pub fn largest_input(&self) -> Shape {
        let [train, eval] = [&self.augment, &self.preprocess].map(|pipeline| shape_of(pipeline.output()));
        if train.plane() > eval.plane() { train } else { eval }
    }

    /// Returns text that identifies this data set independently of its path.
    pub fn identity(&self) -> Result<String, Error> {
        let mut manifest = self.manifest.clone();
        // only `predict` reads it, and data sets that older versions converted do not have it
        manifest.bands.to_8bit = None;
        let checksum = loaders::record::masked_crc32c(digest(&manifest)?.as_bytes());
        let (images, classes) = (self.train.len(), self.train.classes());
        let outputs = if self.manifest.targets.is_empty() { "classes" } else { "targets" };
        Ok(format!("{images} images in {classes} {outputs}, checksum {checksum:08x}"))
    }

    /// Returns a text that must be equal on all ranks: the recipe and the description of the data set.
    pub fn digest(&self) -> Result<String, Error> {
        Ok(format!("{}\n{}", self.recipe.to_toml()?, digest(&self.manifest)?))
    }
}

/// Opens the split that is scored after each epoch, and the split that is scored at the end. Empty splits are omitted.
fn scored_splits(recipe: &Recipe, dataset: &Dataset) -> Result<[Option<Arc<Split>>; 2], Error> {
    let ScoredSplits { watched, at_end } = ScoredSplits::of_run(recipe.eval_split.as_deref(), &dataset.manifest)?;
    let open = |name: Option<String>| {
        let split = name.map(|name| dataset.split(&name)).transpose()?;
        Ok::<_, Error>(split.filter(|split| !split.is_empty()).map(Arc::new))
    };
    Ok([open(watched)?, open(at_end)?])
}

fn check_class_weights(recipe: &Recipe, train: &Split) -> Result<(), Error> {
    let Some(ClassWeights::Given(weights)) = &recipe.loss.class_weights else { return Ok(()) };
    let (given, classes) = (weights.len(), train.classes());
    if given == classes {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "loss.class_weights: got {} for {}; give one weight for each class of {}, in the order of the classes in its dataset.json, or use \
         \"auto\"",
        plural(given, "weight"),
        plural(classes, "class"),
        recipe.data
    )))
}

/// Returns the error for transforms that do not fit the images. If the problem is that image sizes differ, the message adds the first image
/// with another size.
fn unfit(error: &loaders::Error, problem: &str, split: &Split) -> Error {
    let odd = error.is_about_sizes().then(|| split.one_size().err()).flatten();
    Error::Usage(odd.map_or_else(|| problem.to_owned(), |odd| format!("{problem}; {odd}")))
}

/// Returns a data set's description as text with one value per line.
pub fn digest(manifest: &Manifest) -> Result<String, Error> {
    serde_json::to_string_pretty(manifest).map_err(|e| Error::Failed(format!("dataset.json: {e}")))
}

/// Returns an error if the recipe names the data set and it does not exist. `dir` is its path, and `beside` its path next to the recipe,
/// which is the same for an absolute path. `beside` is `None` if the data set exists or was given on the command line. Returns no error if
/// the data set cannot be reached, because opening it reports the cause.
fn check_data_exists(dir: &Path, beside: Option<&Path>) -> Result<(), Error> {
    let Some(beside) = beside.filter(|_| matches!(dir.try_exists(), Ok(false))) else { return Ok(()) };
    let places = match beside == dir {
        true => dir.display().to_string(),
        false => format!(
            "{} (relative to the recipe) and no {} (relative to the current directory)",
            beside.display(),
            dir.display()
        ),
    };
    Err(Error::Usage(format!(
        "data: there is no folder {places}; name the data set with --data, or make one with `trireme data convert`"
    )))
}

/// Returns an error if `preprocess` needs images of one size and the images of `split` have another size than `images`, the images of split
/// `train`.
pub fn check_one_size(data: &str, split: &Split, preprocess: &Pipeline, images: Images) -> Result<(), Error> {
    let (name, other) = (split.name(), split.images_as(preprocess.exif())?);
    if !matches!(preprocess.input(), Images::Fixed(_)) || other == images {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "data set {data}: images of split train are {images}, but images of split {name} are {other}; use images of one size, or begin \
         augment.eval with resize(size) and center_crop(size)"
    )))
}

/// Returns an error if the outputs of the pipelines have different numbers of channels, or if neither image size contains the other.
/// Otherwise returns a note if the sizes differ.
pub fn check_output_sizes(augment: &Pipeline, preprocess: &Pipeline) -> Result<Option<String>, Error> {
    let [train, eval] = [augment, preprocess].map(Pipeline::output);
    if train == eval {
        return Ok(None);
    }
    let within = |a: ImageSpec, b: ImageSpec| a.height <= b.height && a.width <= b.width;
    if train.channels != eval.channels || !(within(train, eval) || within(eval, train)) {
        return Err(Error::Usage(format!(
            "augment.train makes images of {train}, but augment.eval makes images of {eval}; they need the same number of channels, and \
             one size must be at least as high and as wide as the other"
        )));
    }
    Ok(Some(format!("sizes: the network is trained on images of {train} and evaluated on images of {eval}")))
}

/// Returns an error if the pipelines produce values in very different ranges, because the scores would be meaningless. This happens if only
/// one of them normalizes. Returns a warning if the ranges differ slightly.
pub fn check_pixel_values(augment: &Pipeline, preprocess: &Pipeline, bands: &Bands) -> Result<Option<String>, Error> {
    let [train, eval] = [augment, preprocess].map(|pipeline| PixelValues::from_transforms(&pipeline.ops(), bands));
    let what = format!("augment.train makes {train}, but augment.eval makes {eval}");
    match train.agreement(&eval) {
        Agreement::Same => Ok(None),
        Agreement::OtherNumbers => Ok(Some(format!(
            "warning: {what}, so the network is scored on values that it was not trained on; use the same normalize in both"
        ))),
        Agreement::FarApart => {
            Err(Error::Usage(format!("{what}; end both with the same normalize, or leave it out of both")))
        }
    }
}

// Computes the values of black and white pixels after a list of transforms. Without `normalize`, 8-bit values range from 0 to 255. With it,
// they range from about -2 to 2. If two lists differ, the network gets values that it was not trained on.

/// `standardize` gives each image mean 0 and standard deviation 1, so nearly all of its values are in this range.
const PER_IMAGE: [f64; 2] = [-2.0, 2.0];
/// Two ranges are [`Agreement::FarApart`] if their widths differ by more than this factor, or if their ends differ by more than this many
/// widths.
const FAR: f64 = 8.0;
/// Largest difference between two roundings of the same mean and standard deviation, as a fraction of the range's width.
const ROUNDING: f64 = 0.02;

/// Values of black and white pixels after a list of transforms. Color and geometry transforms are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelValues {
    /// The values of black and white, per channel, or one pair for all channels. For images that are not 8-bit, the minimum and maximum of
    /// each band count as black and white.
    channels: Vec<[f64; 2]>,
    /// The number by which `normalize` divides values before it subtracts the mean: 255 for bytes, otherwise 1.
    unit: f64,
    /// True if each image is normalized with its own mean and deviation.
    per_image: bool,
}

/// The result of comparing the values after two lists of transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The numbers are equal except for rounding.
    Same,
    /// Different, but similar in magnitude.
    OtherNumbers,
    /// So different that a network trained with one list cannot be used with the other.
    FarApart,
}

impl PixelValues {
    /// Computes the values for images with these bands. The transforms must have all arguments, as in a pipeline or model
    /// file. A band selection that does not fit is ignored.
    pub fn from_transforms(ops: &[String], bands: &Bands) -> Self {
        let mut values = match bands.dtype {
            Dtype::U8 => Self { channels: vec![[0.0, 255.0]], unit: 255.0, per_image: false },
            _ => {
                let known = bands.min.iter().zip(&bands.max).map(|(min, max)| [*min, *max]).collect::<Vec<_>>();
                let kept = selected_bands(ops, bands, known.len() as u32);
                let selected = kept.map(|kept| kept.iter().map(|&band| known[band]).collect::<Vec<_>>());
                let known = selected.unwrap_or(known);
                let channels = if known.is_empty() { vec![[0.0, 1.0]] } else { known };
                Self { channels, unit: 1.0, per_image: false }
            }
        };
        ops.iter().for_each(|op| values.apply(op.trim()));
        values
    }

    fn apply(&mut self, op: &str) {
        if op.starts_with("standardize") {
            *self = Self { channels: vec![PER_IMAGE], unit: 1.0, per_image: true };
        }
        let (name, arguments) = op.strip_suffix(')').and_then(|op| op.split_once('(')).unwrap_or((op, ""));
        let numbers: Vec<f64> = arguments.split(',').flat_map(|number| number.trim().parse()).collect();
        match (name, &numbers[..]) {
            ("scale", [min, max]) => {
                self.channels.iter_mut().flatten().for_each(|value| *value = (*value - min) / (max - min));
                self.unit = 1.0;
            }
            ("log1p", _) => {
                self.channels.iter_mut().flatten().for_each(|value| *value = value.max(0.0).ln_1p());
                self.unit = 1.0;
            }
            _ => {}
        }
        if name != "normalize" {
            return;
        }
        let (means, stds) = numbers.split_at(numbers.len() / 2);
        if means.is_empty() || means.len() != stds.len() {
            return;
        }
        let count = means.len().max(self.channels.len());
        let scaled = |channel: usize| {
            let (mean, std) = (means[channel % means.len()], stds[channel % stds.len()]);
            self.channels[channel % self.channels.len()].map(|value| (value / self.unit - mean) / std)
        };
        self.channels = (0..count).map(scaled).collect();
        self.unit = 1.0;
    }

    /// Compares these values with the values after another list.
    pub fn agreement(&self, other: &Self) -> Agreement {
        let count = self.channels.len().max(other.channels.len());
        let mut found = if self.per_image == other.per_image { Agreement::Same } else { Agreement::OtherNumbers };
        for channel in 0..count {
            let [a, b] = [self, other].map(|values| values.channels[channel % values.channels.len()]);
            let [wide, narrow] = {
                let [x, y] = [a, b].map(|[black, white]| (white - black).abs());
                [x.max(y), x.min(y)]
            };
            let apart = (a[0] - b[0]).abs().max((a[1] - b[1]).abs());
            if wide > FAR * narrow || apart > FAR * wide {
                return Agreement::FarApart;
            }
            if apart > ROUNDING * wide {
                found = Agreement::OtherNumbers;
            }
        }
        found
    }

    /// Returns true if the values still range from 0 to 255, so the transforms did not normalize them.
    pub fn are_bytes(&self) -> bool {
        self.channels == [[0.0, 255.0]]
    }
}

impl fmt::Display for PixelValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.per_image {
            return f.write_str("values with mean 0 and deviation 1 in each image");
        }
        let range = |[black, white]: &[f64; 2]| {
            let short = |value: f64| format!("{}", (value * 100.0).round() / 100.0);
            format!("{} to {}", short(*black), short(*white))
        };
        let all: Vec<String> = self.channels.iter().map(range).collect();
        let alike = all.iter().all(|one| *one == all[0]);
        let shown = if alike { all[0].clone() } else { all.join(", ") };
        write!(f, "values of {shown} for black to white")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Agreement::{FarApart, OtherNumbers, Same};
    use support::mentions;

    const IMAGENET: &str = "normalize(0.485, 0.456, 0.406, 0.229, 0.224, 0.225)";

    fn values(ops: &[&str]) -> PixelValues {
        PixelValues::from_transforms(&ops.iter().map(|op| (*op).to_string()).collect::<Vec<_>>(), &Bands::default())
    }

    fn agreement(a: &[&str], b: &[&str]) -> Agreement {
        let [a, b] = [values(a), values(b)];
        assert_eq!(a.agreement(&b), b.agreement(&a));
        a.agreement(&b)
    }

    #[test]
    fn lists_are_compared_by_what_they_make_of_black_and_white() {
        let half = &["flip", "normalize(0.5, 0.5)"][..];
        assert_eq!(agreement(half, &["normalize(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)", "random_erasing(0.5)"]), Same);
        assert_eq!(agreement(&["normalize(0.4914, 0.247)"], &["normalize(0.49139968, 0.24703233)"]), Same);
        assert_eq!(agreement(half, &[IMAGENET]), OtherNumbers);
        assert_eq!(agreement(half, &["standardize"]), OtherNumbers);
        assert_eq!(agreement(&["normalize(0, 1)"], &[IMAGENET]), OtherNumbers);
        for scaled in ["normalize(0.5, 0.5)", IMAGENET, "standardize", "normalize(0, 1)"] {
            assert_eq!(agreement(&["resize(8)"], &[scaled]), FarApart, "{scaled}");
        }
        assert_eq!(agreement(&["resize(8)"], &["center_crop(4)"]), Same);
        assert!(values(&["resize(8)"]).are_bytes() && !values(&[IMAGENET]).are_bytes());
        // the mean must be a fraction, but here it was given in bytes
        assert_eq!(agreement(&["normalize(127.5, 0.5)"], half), FarApart);
    }

    /// A link to itself cannot be reached, like a folder without permission.
    #[test]
    fn only_a_data_set_that_does_not_exist_is_called_missing() {
        let folder = std::env::temp_dir().join(format!("trireme-no-data-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (missing, unreachable) = (folder.join("missing"), folder.join("loop"));
        std::os::unix::fs::symlink("loop", &unreachable).unwrap();
        check_data_exists(&unreachable, Some(&unreachable)).unwrap();
        check_data_exists(&missing, None).unwrap();
        let error = check_data_exists(&missing, Some(&missing)).unwrap_err();
        mentions(&error, &[&missing.display().to_string(), "--data", "data convert"]);
        assert_eq!(error.code(), 2);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn band_values_come_from_the_data_set() {
        let bands = Bands { dtype: Dtype::U16, min: vec![0.0, 1000.0], max: vec![4000.0, 3000.0], ..Bands::default() };
        let values = |ops: &[&str]| {
            let ops: Vec<String> = ops.iter().map(|op| op.to_string()).collect();
            PixelValues::from_transforms(&ops, &bands).channels
        };
        assert_eq!(values(&["normalize(2000, 1000)"]), [[-2.0, 2.0], [-1.0, 1.0]]);
        assert_eq!(values(&["select_bands(2)", "scale(1000, 2000)", "normalize(1, 0.5)"]), [[-2.0, 2.0]]);
        assert_eq!(values(&["log1p"])[0], [0.0, 4000f64.ln_1p()]);
    }

    #[test]
    fn pixel_values_are_described() {
        mentions(values(&[]), &[" 0 to 255 "]);
        mentions(values(&["normalize(0.5, 0.25)"]), &[" -2 to 2 "]);
        mentions(values(&[IMAGENET]), &[" -2.12 to 2.25, -2.04 to 2.43, -1.8 to 2.64 "]);
        mentions(values(&["standardize"]), &["mean 0", "deviation 1", "each image"]);
    }
}

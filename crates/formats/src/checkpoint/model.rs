//! A trained network with its metadata, stored in both model files and checkpoints.

use std::collections::BTreeMap;
use std::path::Path;

use loaders::{Bands, LabelKind, Target};

use super::error::Error;
use super::h5;
use super::keras::{LayerKind, Tensor};
use super::reader::Group;

/// Version of the model file format for single-label networks. Increased when older programs can no longer read the
/// files.
pub(super) const VERSION: u64 = 2;

/// Version for multi-label networks. Programs that do not know it reject the file, because they would misinterpret its
/// scores.
const MULTI_LABEL_VERSION: u64 = 3;

/// Version for images that are not 8-bit grey or RGB, multi-label or not. Programs that do not know it would prepare
/// images wrongly.
const BANDS_VERSION: u64 = 4;

/// Version for labels that are numbers, regardless of the image format. Programs that do not know it would mistake the
/// outputs for class scores.
const TARGETS_VERSION: u64 = 5;

/// The newest version that this program reads.
pub(super) const NEWEST: u64 = TARGETS_VERSION;

/// A trained network with everything that is needed to use it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelFile {
    /// Name in the catalogue, such as `resnet20`, or name of the file that describes the network.
    pub network: String,
    /// Complete description of the network, if it is not in the catalogue. Otherwise empty.
    pub definition: String,
    /// Shape of the input: channels, height, width.
    pub input: [usize; 3],
    /// Shape of the data set's images before the transforms: channels, height, width. Height and width are 0 if they
    /// vary.
    pub image: [usize; 3],
    /// Class names in label order. If labels are numbers, the names of the targets.
    pub classes: Vec<String>,
    /// The targets if labels are numbers, with the scale that converts outputs to their units. Otherwise empty.
    pub targets: Vec<Target>,
    /// True if images may have any number of labels. Each class then has its own probability.
    pub multi_label: bool,
    /// Transforms that turn a decoded image into the input, as in the recipe's `augment.eval`.
    pub preprocess: Vec<String>,
    /// Type, names and statistics of the data set's bands, which transforms need.
    pub bands: Bands,
    /// Mean per channel, which `normalize` subtracts. For images of bytes, it refers to values divided by 255. For
    /// other types, it has the units of the stored values.
    pub mean: Vec<f64>,
    /// Standard deviation per channel in the same units, by which `normalize` divides.
    pub std: Vec<f64>,
    /// The resolved recipe as TOML.
    pub recipe: String,
    /// Scores by name, such as `validation/top1`.
    pub scores: BTreeMap<String, f64>,
    pub epoch: u64,
    pub step: u64,
    /// Layers with weights in Keras's order (by depth in the graph, the first layer first).
    pub layers: Vec<LayerWeights>,
    /// The same layers with averaged weights (EMA). Empty if the run did not average weights.
    pub ema: Vec<LayerWeights>,
}

/// The weights of a layer, with PyTorch's names and layouts.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerWeights {
    /// Name as in PyTorch's state_dict, such as `layer1.0.conv1`.
    pub name: String,
    pub kind: LayerKind,
    /// Name, such as `weight` or `running_mean`, shape and values in C order. Tensors have the order of PyTorch's
    /// state_dict.
    pub tensors: Vec<Tensor>,
}

#[cfg(test)]
impl ModelFile {
    pub fn sample() -> Self {
        let layer = |name: &str| LayerWeights {
            name: name.into(),
            kind: LayerKind::named("linear").unwrap(),
            tensors: vec![("weight".into(), vec![2, 3], vec![0.5; 6]), ("bias".into(), vec![2], vec![0.25; 2])],
        };
        Self {
            network: "two".into(),
            definition: "nodes = []".into(),
            input: [3, 8, 8],
            image: [3, 8, 8],
            classes: vec!["cat".into(), "dog".into()],
            targets: Vec::new(),
            multi_label: false,
            preprocess: vec!["normalize".into()],
            bands: Bands::default(),
            mean: vec![0.5],
            std: vec![0.25],
            recipe: "model = \"two\"\n".into(),
            scores: BTreeMap::from([("test/top1".into(), 0.5)]),
            epoch: 1,
            step: 2,
            layers: vec![layer("fc1"), layer("fc2")],
            ema: vec![layer("fc1")],
        }
    }
}

impl ModelFile {
    /// Returns `bands` as JSON, or `None` if they have the default value.
    pub(crate) fn bands_text(&self) -> Option<String> {
        (self.bands != Bands::default()).then(|| serde_json::json!(self.bands).to_string())
    }

    /// Returns the kind of label that the model predicts.
    pub fn label_kind(&self) -> LabelKind {
        LabelKind::new(!self.targets.is_empty(), self.multi_label)
    }

    /// Returns `targets` as JSON, or `None` if `targets` is empty.
    pub(crate) fn targets_text(&self) -> Option<String> {
        (!self.targets.is_empty()).then(|| serde_json::json!(self.targets).to_string())
    }

    /// Writes everything except the weights.
    pub(super) fn put_head(&self, ours: &h5::Group) -> Result<(), Error> {
        let version = match (self.bands.need_version(), self.label_kind()) {
            (_, LabelKind::Numbers) => TARGETS_VERSION,
            (true, _) => BANDS_VERSION,
            (false, LabelKind::Classes) => MULTI_LABEL_VERSION,
            (false, LabelKind::OneClass) => VERSION,
        };
        ours.put_number("version", version)?;
        if let Some(text) = self.bands_text() {
            ours.put_text("bands", &text)?;
        }
        if let Some(text) = self.targets_text() {
            ours.put_text("targets", &text)?;
        }
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

/// Reads everything except the weights.
pub(super) fn read_head(path: &Path, ours: &Group) -> Result<ModelFile, Error> {
    let version: u64 = ours.number("version")?;
    if version > NEWEST {
        return Err(Error::Newer { path: path.to_path_buf(), kind: "model", version, newest: NEWEST });
    }
    let content = |text| Error::Content { path: path.to_path_buf(), text };
    let network = ours.text("network")?;
    let image = parse_chw(&ours.numbers("image")?).map_err(|text| content(format!("image: {text}")))?;
    let classes = ours.texts("classes")?;
    let targets = match ours.optional("targets", Group::text)? {
        Some(text) => parse_targets(&text, &classes).map_err(|text| content(format!("targets: {text}")))?,
        None => Vec::new(),
    };
    let bands = match ours.optional("bands", Group::text)? {
        Some(text) => parse_bands(&text, image[0]).map_err(|text| content(format!("bands: {text}")))?,
        None => Bands::default(),
    };
    Ok(ModelFile {
        network,
        definition: ours.optional("definition", Group::text)?.unwrap_or_default(),
        input: parse_chw(&ours.numbers("input")?)
            .and_then(|input| if input.contains(&0) { Err(format!("a size is 0: {input:?}")) } else { Ok(input) })
            .map_err(|text| content(format!("input: {text}")))?,
        image,
        classes,
        targets,
        multi_label: ours.has_attribute("multi_label"),
        preprocess: ours.texts("preprocess")?,
        bands,
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

/// Parses the attribute `targets`. Returns an error if its names differ from `names`.
fn parse_targets(text: &str, names: &[String]) -> Result<Vec<Target>, String> {
    let targets: Vec<Target> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Target::check(&targets)?;
    match targets.iter().map(|target| &target.name).eq(names) {
        true => Ok(targets),
        false => Err(format!("its {} names differ from the {} names in `classes`", targets.len(), names.len())),
    }
}

/// Parses the attribute `bands` of a model for images with `channels`.
fn parse_bands(text: &str, channels: usize) -> Result<Bands, String> {
    let bands: Bands = serde_json::from_str(text).map_err(|error| error.to_string())?;
    bands.check()?;
    match bands.channels.filter(|&described| bands.need_version() && described as usize != channels) {
        Some(described) => Err(format!("`channels` is {described}, but the images have {channels}")),
        None => Ok(bands),
    }
}

fn read_scores(group: &Group) -> Result<BTreeMap<String, f64>, Error> {
    group.attribute_names().map(|name| group.number(name).map(|score| (name.to_string(), score))).collect()
}

/// Largest accepted size of an image dimension.
const MAX_SIZE: u64 = 1 << 16;

/// Converts three numbers to channels, height and width.
pub(super) fn parse_chw(numbers: &[u64]) -> Result<[usize; 3], String> {
    let sizes: Option<Vec<usize>> =
        numbers.iter().map(|&n| usize::try_from(n).ok().filter(|_| n <= MAX_SIZE)).collect();
    sizes
        .and_then(|sizes| sizes.try_into().ok())
        .ok_or_else(|| format!("channels, height and width must be three numbers up to {MAX_SIZE}, got {numbers:?}"))
}

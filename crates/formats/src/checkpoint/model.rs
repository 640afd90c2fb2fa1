//! A trained network with its metadata, stored in both model files and checkpoints.

use std::collections::BTreeMap;
use std::path::Path;

use loaders::{Bands, LabelKind, Target};
use serde::de::DeserializeOwned;
use serde_json::json;

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

impl LayerWeights {
    /// Replaces each weight of a layer that predicts `targets` by `change(weight, target, offset)`. The offset of a bias
    /// is the target's mean, and of other weights 0.
    ///
    /// # Panics
    ///
    /// Panics if there are no targets.
    pub(crate) fn change_targets(&mut self, targets: &[Target], change: impl Fn(f64, &Target, f64) -> f64) {
        for (field, _, values) in &mut self.tensors {
            let row = values.len() / targets.len();
            for (values, target) in values.chunks_exact_mut(row.max(1)).zip(targets) {
                let offset = if field == "bias" { target.mean } else { 0.0 };
                values.iter_mut().for_each(|value| *value = change(f64::from(*value), target, offset) as f32);
            }
        }
    }
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
        (self.bands != Bands::default()).then(|| json!(self.bands).to_string())
    }

    /// Returns the kind of label that the model predicts.
    pub fn label_kind(&self) -> LabelKind {
        LabelKind::new(!self.targets.is_empty(), self.multi_label)
    }

    /// Returns `targets` as JSON, or `None` if `targets` is empty.
    pub(crate) fn targets_text(&self) -> Option<String> {
        (!self.targets.is_empty()).then(|| json!(self.targets).to_string())
    }

    /// Exported files have metadata whose names start with this prefix.
    pub(crate) const METADATA_PREFIX: &str = "trireme.";

    /// The names that [`Self::from_metadata`] looks up, without the prefix.
    pub(crate) const METADATA_READ: [&str; 11] = [
        "network",
        "input",
        "image",
        "classes",
        "preprocess",
        "mean",
        "std",
        "recipe",
        "multi_label",
        "bands",
        "targets",
    ];

    /// Returns the metadata of an exported file: texts by name, such as `trireme.classes`. Lists are JSON.
    pub(crate) fn metadata(&self) -> BTreeMap<String, String> {
        let fields = [
            ("network", self.network.clone()),
            ("input", json!(self.input).to_string()),
            ("image", json!(self.image).to_string()),
            ("classes", json!(self.classes).to_string()),
            ("preprocess", json!(self.preprocess).to_string()),
            ("mean", json!(self.mean).to_string()),
            ("std", json!(self.std).to_string()),
            ("scores", json!(self.scores).to_string()),
            ("epoch", self.epoch.to_string()),
            ("step", self.step.to_string()),
            ("recipe", self.recipe.clone()),
        ];
        let several = self.multi_label.then(|| ("multi_label", "true".to_string()));
        let bands = self.bands_text().map(|text| ("bands", text));
        let targets = self.targets_text().map(|text| ("targets", text));
        fields
            .into_iter()
            .chain(several)
            .chain(bands)
            .chain(targets)
            .map(|(name, text)| (format!("{}{name}", Self::METADATA_PREFIX), text))
            .collect()
    }

    /// Reads the metadata of an exported file. `text` looks up a text by its name. The model has no weights, scores,
    /// epoch or step. Returns `None` if there is no `trireme.network`, so another program wrote the file.
    ///
    /// # Errors
    ///
    /// Returns a message about the first text that is missing or invalid.
    pub(crate) fn from_metadata<'a>(text: impl Fn(&str) -> Option<&'a str>) -> Result<Option<Self>, String> {
        let text = |name: &str| text(&format!("{}{name}", Self::METADATA_PREFIX));
        let Some(network) = text("network") else { return Ok(None) };
        let of = |name: &str, why: String| format!("metadata {}{name}: {why}", Self::METADATA_PREFIX);
        let input: Vec<u64> = parse_json("input", text("input"))?;
        let input = parse_input(&input).map_err(|why| of("input", why))?;
        let image = match text("image") {
            Some(image) => {
                Some(parse_chw(&parse_json::<Vec<u64>>("image", Some(image))?).map_err(|why| of("image", why))?)
            }
            None => None,
        };
        let bands = match text("bands") {
            Some(text) => parse_bands(text, image.map(|image| image[0])).map_err(|why| of("bands", why))?,
            None => Bands::default(),
        };
        // Exports of earlier builds do not have the size of the data set's images. The input may have fewer channels,
        // because the transforms may select bands.
        let [channels, height, width] = input;
        let image = image.unwrap_or([bands.channels.map_or(channels, |described| described as usize), height, width]);
        let classes: Vec<String> = parse_json("classes", text("classes"))?;
        let targets = text("targets").map(|text| parse_targets(text, &classes).map_err(|why| of("targets", why)));
        Ok(Some(Self {
            network: network.into(),
            input,
            image,
            targets: targets.transpose()?.unwrap_or_default(),
            classes,
            multi_label: text("multi_label").is_some(),
            preprocess: parse_json("preprocess", text("preprocess"))?,
            bands,
            mean: parse_json("mean", text("mean"))?,
            std: parse_json("std", text("std"))?,
            recipe: text("recipe").unwrap_or_default().into(),
            ..Self::default()
        }))
    }

    /// Converts the last layer from predictions in the targets' units, which exports have, to standardised predictions.
    /// Does nothing if labels are classes.
    ///
    /// # Errors
    ///
    /// Returns a message if the last layer has no bias, which would contain the means.
    pub fn standardize_targets(&mut self) -> Result<(), String> {
        if self.targets.is_empty() {
            return Ok(());
        }
        let last = self.layers.last_mut().filter(|layer| layer.tensors.iter().any(|tensor| tensor.0 == "bias"));
        let last = last.ok_or("the last layer must have a bias, which contains the means of the targets")?;
        last.change_targets(&self.targets, |value, target, offset| (value - offset) / target.scale());
        Ok(())
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
        Some(text) => parse_bands(&text, Some(image[0])).map_err(|text| content(format!("bands: {text}")))?,
        None => Bands::default(),
    };
    Ok(ModelFile {
        network,
        definition: ours.optional("definition", Group::text)?.unwrap_or_default(),
        input: parse_input(&ours.numbers("input")?).map_err(|text| content(format!("input: {text}")))?,
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

/// Parses the JSON text of a metadata entry. Returns an error if the entry is missing.
fn parse_json<T: DeserializeOwned>(name: &str, text: Option<&str>) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("metadata {}{name}: it is missing", ModelFile::METADATA_PREFIX))?;
    serde_json::from_str(text).map_err(|error| format!("metadata {}{name}: {error}", ModelFile::METADATA_PREFIX))
}

/// Converts three numbers to the shape of an input. No size may be 0.
fn parse_input(numbers: &[u64]) -> Result<[usize; 3], String> {
    parse_chw(numbers)
        .and_then(|input| if input.contains(&0) { Err(format!("a size is 0: {input:?}")) } else { Ok(input) })
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

/// Parses the attribute `bands` of a model for images with `channels`, if their number is known.
fn parse_bands(text: &str, channels: Option<usize>) -> Result<Bands, String> {
    let bands: Bands = serde_json::from_str(text).map_err(|error| error.to_string())?;
    bands.check()?;
    match bands.channels.zip(channels) {
        Some((described, channels)) if bands.need_version() && described as usize != channels => {
            Err(format!("`channels` is {described}, but the images have {channels}"))
        }
        _ => Ok(bands),
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

#[cfg(test)]
mod tests {
    use loaders::Dtype;

    use super::*;

    fn read(texts: &BTreeMap<String, String>) -> Result<Option<ModelFile>, String> {
        ModelFile::from_metadata(|name| {
            let short = name.strip_prefix(ModelFile::METADATA_PREFIX).unwrap();
            assert!(ModelFile::METADATA_READ.contains(&short), "{name}");
            texts.get(name).map(String::as_str)
        })
    }

    #[test]
    fn metadata_is_read_back() {
        let plain = ModelFile { image: [3, 0, 0], preprocess: vec!["resize(8x8)".into()], ..ModelFile::sample() };
        let several = ModelFile { multi_label: true, ..plain.clone() };
        let target = |name: &str| Target { name: name.into(), mean: 2015.3, std: 0.1 };
        let numbers = ModelFile { targets: vec![target("cat"), target("dog")], ..plain.clone() };
        let bands = Bands { nodata: Some(7.0), ..Bands::default() };
        for model in [ModelFile { bands, ..plain.clone() }, plain, several, numbers] {
            let found = read(&model.metadata()).unwrap().unwrap();
            let expected = ModelFile {
                definition: String::new(),
                scores: BTreeMap::new(),
                epoch: 0,
                step: 0,
                layers: Vec::new(),
                ema: Vec::new(),
                ..model
            };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn damaged_metadata_is_named() {
        let texts = ModelFile::sample().metadata();
        let changed = |name: &str, text: Option<&str>| {
            let mut texts = texts.clone();
            texts.remove(name);
            texts.extend(text.map(|text| (name.to_string(), text.to_string())));
            read(&texts)
        };
        assert_eq!(changed("trireme.network", None), Ok(None));
        // files of earlier builds
        assert_eq!(changed("trireme.image", None).unwrap().unwrap().image, [3, 8, 8]);
        let wrong = [
            ("trireme.classes", None),
            ("trireme.classes", Some("[1]")),
            ("trireme.input", Some("[3,0,8]")),
            ("trireme.mean", Some("0.5")),
            ("trireme.targets", Some(r#"[{"name":"x"}]"#)),
        ];
        for (name, text) in wrong {
            let error = changed(name, text).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn exports_of_earlier_builds_have_the_channels_of_their_bands() {
        let bands = Bands { dtype: Dtype::U16, channels: Some(4), ..Bands::default() };
        let preprocess = vec!["select_bands(3, 2, 1)".into(), "normalize(0.5, 0.25)".into()];
        let model = ModelFile { image: [4, 8, 8], bands, preprocess, ..ModelFile::sample() };
        let mut texts = model.metadata();
        texts.remove("trireme.image").unwrap();
        let found = read(&texts).unwrap().unwrap();
        assert_eq!((found.input, found.image, found.bands), ([3, 8, 8], [4, 8, 8], model.bands));
        texts.insert("trireme.image".into(), "[5,8,8]".into());
        let error = read(&texts).unwrap_err();
        assert!(error.contains("trireme.bands"), "{error}");
    }

    #[test]
    fn standardized_weights_invert_those_in_the_units_of_the_targets() {
        let target = |name: &str, mean, std| Target { name: name.into(), mean, std };
        let targets = vec![target("cat", 10.0, 4.0), target("dog", -2.0, 0.0)];
        let own = ModelFile { targets, ..ModelFile::sample() };
        let mut exported = own.clone();
        let last = exported.layers.last_mut().unwrap();
        last.change_targets(&own.targets, |value, target, offset| value * target.scale() + offset);
        // weights of 0.5 and biases of 0.25, for a target with the scale 4 and one without a deviation
        assert_eq!(last.tensors[0].2, [2.0, 2.0, 2.0, 0.5, 0.5, 0.5]);
        assert_eq!(last.tensors[1].2, [11.0, -1.75]);
        exported.standardize_targets().unwrap();
        assert_eq!(exported, own);
        exported.layers[1].tensors.pop();
        assert!(exported.standardize_targets().unwrap_err().contains("bias"));
        let mut classes = ModelFile::sample();
        classes.standardize_targets().unwrap();
        assert_eq!(classes, ModelFile::sample());
    }
}

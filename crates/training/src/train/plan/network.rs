//! Builds the network of a run from the catalogue, a network file or a model file. Also matches the recipe's patterns that select
//! parameters.
//!
//! A run reads a network's file only once. Afterwards it uses a complete description in text form, which checkpoints
//! store.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use base::text::{nearest, with_advice};
use engine::graph::BuildError;
use formats::checkpoint::{ModelFile, Tensor};
use formats::interop::onnx;
use formats::interop::onnx::{Network, Survey};
use loaders::{ImageSpec, Images, LabelKind, regular, why};
use net::{NetSpec, Op, Shape, models, net_toml};
use recipe::matches;

use crate::error::Error;

/// A network that was read from a file.
#[derive(Clone, Debug)]
pub struct FileNetwork {
    pub net: NetSpec,
    /// The complete description of the network as text. Checkpoints store it.
    pub text: String,
    /// Content of the file, to be copied to the output directory. `None` if the network comes from a checkpoint.
    pub copy: Option<Vec<u8>>,
    /// Initial weights from an ONNX file. Empty if there are none.
    pub start: Vec<Tensor>,
    /// Messages for the user, one per line.
    pub notes: Vec<String>,
}

/// Builds a network from the catalogue for images of this shape.
pub fn network(model: &str, image: ImageSpec, classes: usize) -> Result<NetSpec, Error> {
    models::build(model, shape_of(image), classes).ok_or_else(|| Error::Usage(models::unknown(model)))
}

/// Builds a network and checks that the images are large enough and can be divided into whole patches. Returns an error
/// that states the smallest possible size, or the patch size that must divide height and width, and a remedy.
pub fn build_checked(model: &str, image: ImageSpec, classes: usize) -> Result<NetSpec, Error> {
    let net = network(model, image, classes)?;
    let (ImageSpec { height, width, channels }, usual) = (image, models::input(model).map_or(0, |input| input.h));
    let patch = models::find(model).map_or(1, |network| network.patch as u32);
    if !height.is_multiple_of(patch) || !width.is_multiple_of(patch) {
        let near = |side: u32| side.next_multiple_of(patch);
        return Err(Error::Usage(format!(
            "network {model} divides images into patches of {patch} x {patch} pixels, but the transforms make {width} x {height}. Change \
             the size in augment.train and augment.eval, for example to {} x {}",
            near(width),
            near(height)
        )));
    }
    let Err(error) = net.shapes() else { return Ok(net) };
    let fits =
        |side: u32| network(model, ImageSpec::new(side, side, channels), classes).is_ok_and(|net| net.shapes().is_ok());
    match (1..=usual as u32).find(|side| fits(*side)) {
        Some(least) if height.min(width) < least => Err(Error::Usage(format!(
            "network {model} needs images of at least {least} x {least} pixels, but the transforms make {width} x {height} (layer {}: \
             {}). Make them larger in augment.train and augment.eval (resize, random_resized_crop), or choose a network for small \
             images (`trireme models`)",
            error.layer, error.why
        ))),
        // building the graph reports all other errors
        _ => Ok(net),
    }
}

/// Returns the network of a model file or checkpoint. Returns an error if the name is not in the catalogue or the
/// description is damaged.
pub fn of_model(model: &ModelFile) -> Result<NetSpec, Error> {
    let [c, h, w] = model.input;
    let classes = model.classes.len();
    match model.definition.is_empty() {
        true => network(&model.network, ImageSpec::new(h as u32, w as u32, c as u32), classes),
        false => of_text(&model.definition, &model.network, Shape::image(c, h, w), classes),
    }
}

impl FileNetwork {
    /// Reads a network's file and builds it for these images and classes. Returns an error with file, line and node if
    /// the file is invalid.
    pub fn read(path: &Path, name: &str, image: ImageSpec, classes: usize) -> Result<Self, Error> {
        check_exists(
            "cannot read the network",
            path,
            "name a file next to the recipe, or a network of `trireme models`",
        )?;
        let cannot = Error::file("read the network", path);
        let bytes = regular::read(path).map_err(cannot)?;
        let input = shape_of(image);
        if path.extension().is_some_and(|end| end == "onnx") {
            let graph = onnx::of_bytes(&bytes, path).and_then(Survey::network);
            let mut graph = graph.map_err(|error| Error::Usage(error.to_string()))?;
            let exported = graph.exported.take();
            let mut network = Self::from_graph(graph, path, name, input, classes)?;
            if let Some(exported) = exported {
                network.notes.extend(exported.warning(path));
                if exported.labels == LabelKind::Numbers {
                    network.start_last_layer_randomly();
                }
            }
            return Ok(Self { copy: Some(bytes), ..network });
        }
        let file = path.display().to_string();
        let not_text = |_| Error::Usage(format!("{file}: not UTF-8, but a network file must be UTF-8 text"));
        let text = std::str::from_utf8(&bytes).map_err(not_text)?;
        let wrong = |error: net_toml::Error| Error::Usage(error.to_string());
        let net =
            net_toml::Definition::read(text, &file).and_then(|net| net.build(name, input, classes)).map_err(wrong)?;
        Ok(Self { copy: Some(bytes), ..Self::new(net, classes) })
    }

    /// Leaves the last layer of an exported model for numbers out of the initial weights. It computes numbers in the
    /// targets' units, but training needs standardised numbers.
    fn start_last_layer_randomly(&mut self) {
        let Some(last) = self.net.nodes.last().map(|node| node.name.as_str()) else { return };
        let tensors = self.start.len();
        self.start.retain(|tensor| tensor.0.rsplit_once('.').is_none_or(|(layer, _)| layer != last));
        if self.start.len() < tensors {
            self.notes.push(format!(
                "{}: the last layer, {last}, starts with random weights, because the file is an export of a model for numbers, and this \
                 layer computes them in the units of its targets",
                self.net.name
            ));
        }
    }

    /// Builds the network from the description in a checkpoint.
    pub fn from_checkpoint(text: &str, name: &str, image: ImageSpec, classes: usize) -> Result<Self, Error> {
        Ok(Self::new(of_text(text, name, shape_of(image), classes)?, classes))
    }

    fn new(net: NetSpec, classes: usize) -> Self {
        let text = net_toml::write(&net, classes, net_toml::Classes::Number);
        Self { net, text, copy: None, start: Vec::new(), notes: Vec::new() }
    }

    /// Builds a network from an ONNX graph for images with the shape `input`. Messages name the graph's file, `path`.
    pub fn from_graph(graph: Network, path: &Path, name: &str, input: Shape, classes: usize) -> Result<Self, Error> {
        let refuse = |why: String| Error::Usage(format!("{}: {why}", path.display()));
        let Network { mut net, classes: own, mut tensors, notes, exported: _ } = graph;
        let mut notes: Vec<String> = notes.iter().map(|note| format!("{name}: {note}")).collect();
        if own != classes {
            let changed = net_toml::set_classes(&mut net, classes);
            let Some(layer) = changed.first() else {
                return Err(refuse(format!(
                    "the network has {own} classes, but the data set has {classes}, and trireme cannot resize its last layer, which must \
                     be a linear layer or a convolution"
                )));
            };
            tensors.retain(|tensor| {
                !changed.iter().any(|layer| tensor.0.rsplit_once('.').is_some_and(|(own, _)| own == layer))
            });
            notes.push(format!(
                "{name}: the last layer, {layer}, starts with random weights, because the file has {own} classes, but the data set has \
                 {classes}"
            ));
        }
        let there = std::mem::replace(&mut net.input, input);
        let sizes = format!(
            "The network is for images of {there}, but the transforms make {input}; change the sizes in augment.train and augment.eval"
        );
        // the size of the image decides which windows are shifted, and whether a window is the whole plane
        let in_windows = |node: &net::Node| matches!(&node.op, Op::Attention(attention) if attention.window.is_some());
        if (there.h, there.w) != (input.h, input.w) && net.nodes.iter().any(in_windows) {
            return Err(refuse(format!("its attention in windows depends on the image size. {sizes}")));
        }
        // write and read the network as TOML, so that it is checked like a network file
        let text = net_toml::write(&net, classes, net_toml::Classes::Number);
        let net = of_text(&text, name, input, classes)?;
        let fit = fits(&net, &tensors);
        fit.map_err(|why| refuse(format!("{why}. {sizes}")))?;
        Ok(Self { start: tensors, notes, ..Self::new(net, classes) })
    }
}

/// Builds a network from its complete description.
fn of_text(text: &str, name: &str, input: Shape, classes: usize) -> Result<NetSpec, Error> {
    let file = format!("the description of {name}");
    let net = net_toml::Definition::read(text, &file).and_then(|net| net.build(name, input, classes));
    net.map_err(|error| Error::Failed(error.to_string()))
}

/// Checks that each tensor belongs to the network and has the right shape.
fn fits(net: &NetSpec, tensors: &[Tensor]) -> Result<(), String> {
    let all = net.tensors().map_err(|error| error.to_string())?;
    let own: std::collections::BTreeMap<&String, &Vec<usize>> =
        all.parameters.iter().chain(&all.running).map(|(name, shape)| (name, shape)).collect();
    let odd = tensors.iter().find(|(name, shape, _)| own.get(name) != Some(&shape));
    match odd {
        Some((name, shape, _)) => {
            let wanted = own.get(name).map_or("no tensor of that name".to_string(), |shape| format!("{shape:?}"));
            Err(format!(
                "the tensor {name} has shape {shape:?} in the file, but for this run the network needs {wanted}"
            ))
        }
        None => Ok(()),
    }
}

/// Returns the shape of a network's input for these images.
pub fn shape_of(image: ImageSpec) -> Shape {
    Shape::image(image.channels as usize, image.height as usize, image.width as usize)
}

/// Returns channels, height and width of a data set's images. Height and width are 0 if they vary.
pub fn sizes_of(images: Images) -> [usize; 3] {
    let sizes = match images {
        Images::Fixed(image) => [image.channels, image.height, image.width],
        Images::Varied { channels } => [channels, 0, 0],
    };
    sizes.map(|size| size as usize)
}

// Patterns in a recipe that select parameters by name. In most lists, a pattern that matches nothing is an error. Lists such as
// `optimizer.no_decay` may serve several networks, so there it only gets a note.

/// A parameter that patterns are matched against.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Name, for example `layer1.0.bn1.bias`.
    pub name: &'a str,
    /// True if the parameter is part of a normalization layer.
    pub norm: bool,
}

impl Parameter<'_> {
    /// Returns true if `word` is a keyword that includes this parameter. The keyword "norm" includes all parameters of normalization
    /// layers, and "bias" includes all biases.
    fn is_of_kind(&self, word: &str) -> bool {
        match word {
            "norm" => self.norm,
            "bias" => self.name.ends_with(".bias"),
            _ => false,
        }
    }
}

/// Replaces the keywords "norm" and "bias" in a list with the names of the parameters. A keyword that selects no parameter stays in the
/// list.
pub fn expand_keywords(list: &[String], parameters: &[Parameter<'_>]) -> Vec<String> {
    let names = |word: &String| {
        let of_kind: Vec<String> =
            parameters.iter().filter(|one| one.is_of_kind(word)).map(|one| one.name.to_string()).collect();
        if of_kind.is_empty() { vec![word.clone()] } else { of_kind }
    };
    list.iter().flat_map(names).collect()
}

/// Formats how many parameters each entry of a list selects, for the log. Returns `None` for an empty list.
pub fn describe_matches(key: &str, list: &[String], parameters: &[Parameter<'_>]) -> Option<String> {
    let named = |one: &&Parameter<'_>, word: &str| one.is_of_kind(word) || matches(word, one.name);
    let count = |word: &String| {
        let count = parameters.iter().filter(|one| named(one, word)).count();
        format!("\"{word}\" {count}")
    };
    let all: Vec<String> = list.iter().map(count).collect();
    (!all.is_empty()).then(|| format!("{key}: of {} tensors {}", parameters.len(), all.join(", ")))
}

/// Maximum number of names in a message.
const MOST: usize = 12;

/// Returns an error if a pattern in the list `key` matches none of `names`. `of` says in the message what `names` belong to, such as a
/// network.
pub fn check_patterns(key: &str, patterns: &[String], names: &[&str], of: &str) -> Result<(), Error> {
    let odd = patterns.iter().find(|pattern| !names.iter().any(|name| matches(pattern, name)));
    odd.map_or(Ok(()), |pattern| {
        Err(Error::Usage(format!("{key}: \"{pattern}\" matches nothing in {of}; {}", nearest_name(pattern, names))))
    })
}

/// Returns warnings about patterns in the list `key` that match none of `names`.
pub fn notes(key: &str, patterns: &[String], names: &[&str], of: &str) -> Vec<String> {
    let each =
        patterns.iter().filter_map(|pattern| check_patterns(key, std::slice::from_ref(pattern), names, of).err());
    each.map(|error| format!("warning: {error}")).collect()
}

/// Returns a hint with the name most similar to a pattern.
pub fn nearest_name(pattern: &str, names: &[&str]) -> String {
    let modules: BTreeSet<&str> = names.iter().flat_map(|name| prefixes(name)).collect();
    let words: Vec<&str> = modules.iter().copied().collect();
    let bare = pattern.trim_matches('*').trim_matches('.');
    match nearest(bare, &words) {
        Some(found) if names.contains(&found) => format!("did you mean \"{found}\"?"),
        Some(found) => format!("did you mean \"{found}.*\"?"),
        None => {
            let first: BTreeSet<&str> = names.iter().filter_map(|name| name.split('.').next()).collect();
            let more = if first.len() > MOST { ", ..." } else { "" };
            let listed: Vec<&str> = first.into_iter().take(MOST).collect();
            format!("the names begin with {}{more}", listed.join(", "))
        }
    }
}

/// Returns the name and the names of its parent modules.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(at, _)| &name[..at]).chain([name])
}

/// Returns the parameters that `freeze.patterns` matches. Returns an error if a pattern matches no parameter, or if no
/// parameter would be trained.
pub fn frozen(net: &NetSpec, patterns: &[String]) -> Result<BTreeSet<String>, Error> {
    let parameters = net.tensors().map_err(BuildError::from)?.parameters;
    let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    check_patterns("freeze.patterns", patterns, &names, &format!("network {}", net.name))?;
    let frozen: BTreeSet<String> =
        names.iter().filter(|name| patterns.iter().any(|p| matches(p, name))).map(ToString::to_string).collect();
    if frozen.len() < names.len() {
        return Ok(frozen);
    }
    let last = names.last().and_then(|name| name.rsplit_once('.')).map_or("", |(module, _)| module);
    Err(Error::Usage(format!(
        "freeze.patterns = {patterns:?} matches all {} parameters of network {}, so nothing would be trained; leave some out, such as \
         \"{last}.*\"",
        names.len(),
        net.name
    )))
}

/// Checks that a path exists. Other problems are found when the file is read. `cannot` is the start of the message,
/// such as `cannot read the network`, and `cure` says what to do instead. Returns an error if the path does not exist.
/// The error suggests a similar name.
pub fn check_exists(cannot: &str, path: &Path, cure: &str) -> Result<(), Error> {
    match fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Error::Usage(format!("{cannot} {}: {}", path.display(), with_advice(&why(path, &error), cure))))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use support::mentions;

    #[test]
    fn images_that_are_too_small_get_the_smallest_size() {
        let of = |model, side| build_checked(model, ImageSpec::new(side, side, 3), 10);
        let error = of("alexnet", 32).unwrap_err();
        let text = error.to_string();
        for part in ["network alexnet", "63 x 63", "32 x 32", "256x1x1", "augment.train"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(error.code(), 2);
        assert!(of("alexnet", 62).is_err() && of("alexnet", 63).is_ok());
        assert!(of("inception_v3", 32).is_err() && of("resnet20", 32).is_ok());
    }

    const NAMES: [&str; 6] =
        ["conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer2.0.conv1.weight", "fc.weight"];

    /// Asserts that a pattern matches nothing, and that the error contains `suggestion`.
    #[track_caller]
    fn refused(pattern: &str, suggestion: &str) {
        let error = check_patterns("freeze.patterns", &[pattern.to_string()], &NAMES, "network x").unwrap_err();
        mentions(error, &["freeze.patterns", &format!("\"{pattern}\""), "network x", suggestion]);
    }

    #[test]
    fn keywords_select_parameters() {
        let parameters = NAMES.map(|name| Parameter { name, norm: name.starts_with("bn") });
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        assert_eq!(expand_keywords(&list(&["norm", "fc.*"]), &parameters), ["bn1.weight", "bn1.bias", "fc.*"]);
        assert_eq!(expand_keywords(&list(&["bias"]), &parameters), ["bn1.bias"]);
        assert_eq!(expand_keywords(&list(&["bias"]), &parameters[..1]), ["bias"]);
        let note = describe_matches("optimizer.no_decay", &list(&["norm", "bias", "*conv1*"]), &parameters);
        mentions(note.unwrap(), &["optimizer.no_decay", "6 tensors", "\"norm\" 2", "\"bias\" 1", "\"*conv1*\" 3"]);
        assert_eq!(describe_matches("optimizer.no_decay", &[], &parameters), None);
    }

    #[test]
    fn a_pattern_without_a_match_gets_the_nearest_name() {
        refused("layr1.*", "\"layer1.*\"");
        refused("layer1", "\"layer1.*\"");
        refused("bn1.wieght", "\"bn1.weight\"");
        refused("transformer.*", "bn1, conv1, fc, layer1, layer2");
        assert!(check_patterns("x", &["*.weight".into(), "bn?.bias".into()], &NAMES, "y").is_ok());
        let list: Vec<String> = ["*.weight", "*.bais", "gn.*"].map(Into::into).to_vec();
        let warnings = notes("optimizer.no_decay", &list, &NAMES, "network x");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        mentions(&warnings[0], &["warning: optimizer.no_decay: ", "\"*.bais\"", "network x"]);
        mentions(&warnings[1], &["warning: optimizer.no_decay: ", "\"gn.*\"", "network x"]);
    }

    #[test]
    fn a_missing_file_is_a_usage_error() {
        let error = check_exists("init.from: cannot read", Path::new("/nowhere.pth"), "name a file").unwrap_err();
        assert_eq!(error.code(), 2);
        support::mentions(error, &["init.from: cannot read", "/nowhere.pth", "No such file", "name a file"]);
        assert!(check_exists("cannot read", Path::new("/"), "").is_ok());
    }
}
